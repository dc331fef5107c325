"""Fair queue of inputs: first in, first out, but a node that submits much more than others delays only itself.

Start-time fair queueing: each lane (a node) has a virtual time that advances by the weight of its inputs. What is ahead
of the common time by more than `AHEAD` waits until the others have caught up. A lane keeps its order, and while no lane
is so far ahead, the order is that of arrival.
"""

from __future__ import annotations

import heapq
import math
import queue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

AHEAD = 200.0  # inputs: more than a node without a flood reports at once


class QueuedItem(NamedTuple, Generic[T]):
    """An item in the queue. The empty lane is the controller's own and is never delayed."""

    what: T
    lane: str
    weight: int


class FairQueue(queue.Queue["QueuedItem[T] | None"], Generic[T]):
    """None marks the end: it comes out after everything put before it, and before everything put after it."""

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - as queue.Queue calls it
        self._heap: list[tuple[float, int, QueuedItem[T] | None]] = []
        self._lanes: dict[str, float] = {}  # virtual time at which all of a lane's items are done
        self._now = 0.0  # common virtual time, in inputs per lane
        self._count = 0
        self._ended = False

    def _qsize(self) -> int:
        return len(self._heap)

    def _put(self, item: QueuedItem[T] | None) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self._turn(item), self._count, item))

    def _turn(self, item: QueuedItem[T] | None) -> float:
        self._ended = self._ended or item is None
        if item is None or self._ended:
            return math.inf
        if not item.lane:
            return self._now
        done = max(self._now, self._lanes.get(item.lane, 0.0))
        self._lanes[item.lane] = done + item.weight
        return max(self._now, done - AHEAD)

    def _get(self) -> QueuedItem[T] | None:
        self._now, _, item = heapq.heappop(self._heap)
        if not self._heap:  # no lane is ahead
            self._lanes.clear()
        return item

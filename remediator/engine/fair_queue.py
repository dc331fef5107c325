"""Whose input is next: in the order they came, but who hands in much more than others waits for itself and for nobody else.

Start-time fair queueing. Each lane (a node) has a time of its own that its inputs move on by what they weigh; what is ahead of
the common time by more than `AHEAD` waits until the others have come as far. Within a lane the order is kept, and as long as
nobody is so far ahead it is the order in which everything came.
"""

from __future__ import annotations

import heapq
import math
import queue
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

AHEAD = 200.0  # pieces of news: more than a node tells at once that has no flood to tell of


class QueuedItem(NamedTuple, Generic[T]):
    """Something handed in. An empty lane is the centre's own and never waits for itself."""

    what: T
    lane: str
    weight: int


class FairQueue(queue.Queue["QueuedItem[T] | None"], Generic[T]):
    """None is the end: it comes out after everything that was put before it, and what was put after comes behind it."""

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - as queue.Queue calls it
        self._heap: list[tuple[float, int, QueuedItem[T] | None]] = []
        self._lanes: dict[str, float] = {}  # when all that a lane has handed in is done, in common time
        self._now = 0.0  # common time: pieces of news that each lane could have had taken
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
        if not self._heap:  # nobody is ahead of anybody
            self._lanes.clear()
        return item

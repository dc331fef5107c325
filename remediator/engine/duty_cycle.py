"""For threads that compute beside the one that answers requests: a little work, then a rest, and so on.

Only one thread runs Python at a time, and a thread that computes gives way at each turn only after the switch interval. An answer takes
several turns. So a look over a whole fleet that lasts a quarter of a second without a rest makes thousands of answers late
(bench/results/2026-11-remediator.md).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

WORK_S = 0.001
REST_S = 0.003


class DutyCycle:
    """Of one thread at a time. `work_s` counts its own processor time, `rest_s` the clock's."""

    def __init__(
        self,
        work_s: float = WORK_S,
        rest_s: float = REST_S,
        worked: Callable[[], float] = time.thread_time,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        self._work_s = work_s
        self._rest_s = rest_s
        self._worked = worked
        self._rest = rest
        self._rested_at = 0.0

    def begin(self) -> None:
        """The thread has done something else until now, or another thread goes on."""
        self._rested_at = self._worked()

    def step(self) -> None:
        """Between two pieces of work: rest if it is time to."""
        if self._worked() - self._rested_at >= self._work_s:
            self._rest(self._rest_s)
            self._rested_at = self._worked()

    def over(self, items: Iterable[T], together: int = 1) -> Iterator[T]:
        """The items, with a rest where it is time to.

        Args:
            items: each a piece of work.
            together: so many are done before the clock is asked, which costs microseconds: more than a small piece of work.
        """
        for number, item in enumerate(items, 1):
            yield item
            if number % together == 0:
                self.step()

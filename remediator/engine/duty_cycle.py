"""Duty cycle for threads that compute beside the event loop: a little work, then a rest.

Only one thread runs Python at a time, and a computing thread yields only after the switch interval. A response needs
several turns, so a pass over a fleet that takes a quarter of a second without a rest delays thousands of responses
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
    """Duty cycle of one thread. `work_s` is measured in its own processor time, `rest_s` in wall time."""

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
        """Start: the thread did something else until now, or another thread continues."""
        self._rested_at = self._worked()

    def step(self) -> None:
        """Between two pieces of work: rest if it is time to."""
        if self._worked() - self._rested_at >= self._work_s:
            self._rest(self._rest_s)
            self._rested_at = self._worked()

    def over(self, items: Iterable[T], together: int = 1) -> Iterator[T]:
        """Yield the items, with rests in between.

        Args:
            items: each a piece of work.
            together: items between two readings of the clock, because a reading costs more than a small item.
        """
        for number, item in enumerate(items, 1):
            yield item
            if number % together == 0:
                self.step()

"""Hysteresis and debounce for findings. Pure; times are monotonic seconds, so a clock step has no effect."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

KEYS_MAX = 10_000  # keys remembered at once; a machine has far fewer
POINTS = 30  # of each counter within its window; those that come faster replace one another


def judge_band(value: float | None, *, bad: float, good: float) -> bool | None:
    """Return whether a value is bad: yes from `bad` on, no from `good` on, and None in between."""
    if value is None:
        return None
    if (value >= bad) if bad > good else (value <= bad):
        return True
    return False if (value <= good if bad > good else value >= good) else None


class Dwell:
    """A condition starts once it has held for `raise_after_s`, and ends once it has been absent for `clear_after_s`."""

    def __init__(self, raise_after_s: float, clear_after_s: float) -> None:
        self._wait_s = {True: raise_after_s, False: clear_after_s}
        self._decided: dict[Hashable, bool] = {}
        self._differs_since: dict[Hashable, float] = {}
        self._due_at: dict[Hashable, float] = {}  # when a pending change takes effect

    @property
    def due_at(self) -> float:
        """Return when the same readings may be judged differently; infinite while no change is pending."""
        return min(self._due_at.values(), default=math.inf)

    def judge(self, key: Hashable, bad: bool | None, at: float) -> bool | None:  # noqa: FBT001 - the reading itself
        """Return whether the condition counts for `key`; None while unknown, so that an earlier finding stays.

        It is unknown without a reading, while a change is pending, and at first (a restarted agent must not clear
        earlier findings before it has watched for as long).
        """
        if bad is None or bad == self._decided.get(key):
            self._differs_since.pop(key, None)
            self._due_at.pop(key, None)
            return bad
        if len(self._differs_since) >= KEYS_MAX and key not in self._differs_since:
            return None
        due_at = self._due_at[key] = self._differs_since.setdefault(key, at) + self._wait_s[bad]
        if at < due_at:
            return None
        del self._differs_since[key], self._due_at[key]
        self._decided[key] = bad
        return bad


class Growth:
    """How much a counter has grown within the last `window_s`. A counter that falls was reset, and starts over."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._points: dict[Hashable, deque[tuple[float, int]]] = {}

    def add(self, key: Hashable, value: int | None, at: float) -> int | None:
        """Return the growth up to this reading; None if unknown: no reading, or none before it."""
        if value is None:
            return None
        points = self._points.get(key)
        if points is None:
            if len(self._points) < KEYS_MAX:
                self._points[key] = deque([(at, value)])
            return None
        if value < points[-1][1]:
            points.clear()
            points.append((at, value))
            return 0
        if len(points) > 1 and at - points[-2][0] < self._window_s / POINTS:
            points[-1] = (at, value)
        else:
            points.append((at, value))
        while len(points) > 2 and points[1][0] <= at - self._window_s:
            points.popleft()
        return value - points[0][1]

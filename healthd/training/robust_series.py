"""A number of each step against what it usually is: the median of a long past, and how far values lie from it.

The past is kept clean: values that count as bad stay out of it, so that a job that went bad is not soon taken for
usual. A level that lasts becomes the usual one after `settle_steps`: somebody changed the job on purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

REFRESH_STEPS = 32  # the past is long: its median hardly moves in fewer, and sorting is what costs
TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, for a normal distribution


class UsualRange(NamedTuple):
    """The robust centre and spread of the past."""

    centre: float
    spread: float


Band = Callable[[float, UsualRange], "bool | None"]  # a value: bad, good, or neither


class SeriesMemory(NamedTuple):
    """How long things last, in steps. `recent` values are judged by their median; at least `least` make a past."""

    recent: int
    window: int
    least: int
    raise_after: int
    clear_after: int
    settle: int


def compute_median(values: list[float]) -> float:
    """The median; the values are sorted in place."""
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


class Streak:
    """A condition counts after so many bad steps in a row, and ends after so many good ones; in between it stays."""

    def __init__(self, raise_after: int, clear_after: int) -> None:
        self._wanted = {True: raise_after, False: clear_after}
        self._run, self._of = 0, False
        self.holds = False

    @property
    def calm(self) -> bool:
        """Neither does it hold nor is there reason to think that it begins to."""
        return not (self.holds or self._of)

    def add(self, bad: bool | None) -> None:  # noqa: FBT001 - the judgement itself
        """One more step; None is neither and ends a run of either kind."""
        if bad is None:
            self._run = 0
            return
        self._run = self._run + 1 if bad is self._of else 1
        self._of = bad
        if self._run >= self._wanted[bad]:
            self.holds = bad


class RobustSeries:
    """One number of one rank, over its steps. `value` and `usual` are what the last judgement compared."""

    def __init__(self, memory: SeriesMemory, band: Band) -> None:
        self._memory, self._band = memory, band
        self._past: deque[float] = deque(maxlen=memory.window)
        self._recent: deque[float] = deque(maxlen=memory.recent)
        self._aside: list[float] = []
        self._streak = Streak(memory.raise_after, memory.clear_after)
        self._stale = 0
        self.value = 0.0
        self.usual: UsualRange | None = None

    @property
    def holds(self) -> bool | None:
        """Whether it is bad; None while there is no past to compare with."""
        return None if self.usual is None else self._streak.holds

    @property
    def calm(self) -> bool:
        """Whether the last value was as good as any; without a past all are."""
        return self.usual is None or self._streak.calm

    @property
    def known(self) -> bool:
        """Whether the job reports this number at all."""
        return bool(self._recent)

    def add(self, value: float) -> None:
        """The number of the next step; infinite and NaN are bad once there is a past, and never become usual."""
        self._recent.append(value)
        self._refresh()
        if self.usual is None:
            if isfinite(value):
                self._past.append(value)
            return
        self.value = self._smooth()
        bad = True if not isfinite(self.value) else self._band(self.value, self.usual)
        self._streak.add(bad)
        if bad is not True and not self._streak.holds:
            self._aside.clear()
            if isfinite(value):
                self._past.append(value)
                self._stale += 1
        elif isfinite(value):
            self._keep_aside(value)

    def _smooth(self) -> float:
        if self._memory.recent == 1:
            return self._recent[-1]
        broken = next((value for value in self._recent if not isfinite(value)), None)
        return compute_median(list(self._recent)) if broken is None else broken

    def _keep_aside(self, value: float) -> None:
        self._aside.append(value)
        if len(self._aside) >= self._memory.settle:
            self._past = deque(self._aside, maxlen=self._memory.window)
            self._aside.clear()
            self._stale = REFRESH_STEPS
            self._streak = Streak(self._memory.raise_after, self._memory.clear_after)

    def _refresh(self) -> None:
        if len(self._past) < self._memory.least or (self.usual is not None and self._stale < REFRESH_STEPS):
            return
        self._stale = 0
        self.usual = compute_usual_range(self._past)


def compute_usual_range(past: deque[float]) -> UsualRange:
    """Centre and spread of finite values; at least one."""
    centre = compute_median(list(past))
    return UsualRange(centre, TO_SIGMA * compute_median([abs(value - centre) for value in past]))

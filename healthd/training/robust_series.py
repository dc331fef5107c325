"""Compares each step's value with the median and spread of a long history.

Bad values stay out of the history, so that a job that went bad does not soon count as usual. A level that lasts becomes
the usual one after `settle_steps`: the job was changed on purpose.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import isfinite
from typing import NamedTuple

REFRESH_STEPS = 32  # the median of a long history hardly moves in fewer steps, and sorting is expensive
TO_SIGMA = 1.4826  # median absolute deviation to standard deviation, for a normal distribution


class UsualRange(NamedTuple):
    """The robust centre and spread of the history."""

    centre: float
    spread: float


Band = Callable[[float, UsualRange], "bool | None"]  # classifies a value: bad, good, or neither


class SeriesMemory(NamedTuple):
    """Window lengths in steps. `recent` values are judged by their median; at least `least` make a history."""

    recent: int
    window: int
    least: int
    raise_after: int
    clear_after: int
    settle: int


def compute_median(values: list[float]) -> float:
    """Return the median; sorts the values in place."""
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


class Streak:
    """A condition that starts after a number of bad steps in a row and ends after a number of good ones."""

    def __init__(self, raise_after: int, clear_after: int) -> None:
        self._wanted = {True: raise_after, False: clear_after}
        self._run, self._of = 0, False
        self.holds = False

    @property
    def calm(self) -> bool:
        """Return whether the condition neither holds nor seems to begin."""
        return not (self.holds or self._of)

    def add(self, bad: bool | None) -> None:  # noqa: FBT001 - the judgement itself
        """Add one step; None is neither good nor bad and ends a run of either kind."""
        if bad is None:
            self._run = 0
            return
        self._run = self._run + 1 if bad is self._of else 1
        self._of = bad
        if self._run >= self._wanted[bad]:
            self.holds = bad


class RobustSeries:
    """One value of one rank over its steps. `value` and `usual` are what the last judgement compared."""

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
        """Return whether it is bad; None while there is no history."""
        return None if self.usual is None else self._streak.holds

    @property
    def calm(self) -> bool:
        """Return whether the last value was good; true without a history."""
        return self.usual is None or self._streak.calm

    @property
    def known(self) -> bool:
        """Return whether the job reports this value at all."""
        return bool(self._recent)

    def add(self, value: float) -> None:
        """Add the next step's value; infinite and NaN are bad once there is a history, and never enter it."""
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
    """Return centre and spread of finite values; needs at least one."""
    centre = compute_median(list(past))
    return UsualRange(centre, TO_SIGMA * compute_median([abs(value - centre) for value in past]))

"""Time as an argument: the two clocks a process needs, and a manual one for tests.

Wall time (UTC seconds since 1970) goes into records; monotonic time measures durations and survives clock steps.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The clock that every program takes instead of calling `time` itself."""

    def wall(self) -> float:
        """UTC, seconds since 1970."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""


class SystemClock:
    """The machine's own clocks."""

    def wall(self) -> float:
        """UTC, seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds; never goes back."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only on request. Shipped, so that tests and replays need no patching."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._start = now

    def wall(self) -> float:
        """The set time, seconds since 1970."""
        return self._now

    def monotonic(self) -> float:
        """Seconds advanced since construction."""
        return self._now - self._start

    def advance(self, seconds: float) -> float:
        """Move forward and return the new wall time."""
        if seconds < 0:
            raise ValueError(f"a clock only moves forward, not by {seconds} s")
        self._now += seconds
        return self._now

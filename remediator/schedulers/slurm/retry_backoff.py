"""Back-off after a slurmctld failure."""

from __future__ import annotations

FIRST_S = 0.5
LONGEST_S = 15.0


class RetryBackoff:
    """Doubles with every failure in a row. Times are of a monotonic clock, in seconds."""

    def __init__(self) -> None:
        self.because = ""
        self._length = 0.0
        self._until = 0.0

    def left(self, now: float) -> float:
        """Return the seconds without queries; 0: query now."""
        return max(0.0, self._until - now)

    def failed(self, because: str, now: float) -> None:
        """Record a failure."""
        self.because = because
        self._length = min(LONGEST_S, self._length * 2 or FIRST_S)
        self._until = now + self._length

    def answered(self) -> None:
        """Record an answer."""
        self.because, self._length, self._until = "", 0.0, 0.0

"""How long to leave a slurmctld alone that did not answer."""

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
        """Seconds for which nothing should be asked; 0: ask."""
        return max(0.0, self._until - now)

    def failed(self, because: str, now: float) -> None:
        """It was asked and gave no answer."""
        self.because = because
        self._length = min(LONGEST_S, self._length * 2 or FIRST_S)
        self._until = now + self._length

    def answered(self) -> None:
        """It was asked and answered."""
        self.because, self._length, self._until = "", 0.0, 0.0

"""A job's progress: work, checkpoints and the cost of a stop, in closed form between events."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass
class JobProgress:
    """Seconds of work at full speed; work since the last checkpoint is lost when the job stops.

    Attributes:
        interval_s, pause_s: working time between checkpoints, and how long each one stops work.
        done_s, saved_s: work done, and what of it a restart finds again.
        speed: of the slowest node, 1 is full.
        at_s: the simulated second up to which this is true.
    """

    interval_s: float
    pause_s: float
    done_s: float = 0.0
    saved_s: float = 0.0
    speed: float = 1.0
    at_s: float = 0.0
    _phase_s: float = 0.0

    def begin(self, now: float, speed: float) -> None:
        """Continue from the last checkpoint."""
        self.at_s, self.speed, self._phase_s = now, speed, 0.0

    def to(self, now: float) -> None:
        """Work until `now`."""
        cycle = self.interval_s + self.pause_s
        end = self._phase_s + now - self.at_s
        cycles, phase = divmod(end, cycle)
        already = min(self._phase_s, self.interval_s)
        whole = self.done_s + (cycles * self.interval_s - already) * self.speed
        if cycles:
            self.saved_s = whole
        self.done_s = whole + min(phase, self.interval_s) * self.speed
        self.at_s, self._phase_s = now, phase

    def save(self) -> None:
        """Make an extra checkpoint."""
        self.saved_s, self._phase_s = self.done_s, 0.0

    def lose(self) -> float:
        """Stop the job. Returns the lost work in seconds."""
        lost, self.done_s = self.done_s - self.saved_s, self.saved_s
        return lost

    def until(self, work_s: float) -> float:
        """Return the seconds from `at_s` until so much work is done, without interruptions."""
        left = max(0.0, work_s - self.done_s) / self.speed + min(self._phase_s, self.interval_s)
        pauses = int(left // self.interval_s)
        return left + pauses * self.pause_s - self._phase_s

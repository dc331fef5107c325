"""Aggregates a rank's steps into windows, so that the controller can compare ranks from few numbers.

A window spans a power of two of steps and begins at a multiple of it, on every rank. The size follows from the step
time, with hysteresis between growing and shrinking, so that equally fast ranks mostly choose the same size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from healthd.samples.rank_steps import RankSteps, StepFacts
from vocabulary.messages.wire import StepWindow

SIZE_MAX = 1024  # a page's ring holds no more
KEPT = 8  # windows sent per rank: those of the last three reports at the usual rate
SHRINKS = 4  # a window this many times too long spans fewer steps from then on

_Rank = tuple[int, str, int, int, int]
_TOLD = ("forward_s", "backward_s", "communication_s", "data_s", "tokens")


class StepWindows:
    """The newest windows of each rank's process."""

    def __init__(self, window_s: float) -> None:
        """Args: `window_s`: minimum duration of a window."""
        self._window_s = window_s
        self._ranks: dict[_Rank, _Windows] = {}
        self._seen: set[_Rank] = set()

    def take(self, steps: RankSteps) -> tuple[StepWindow, ...]:
        """Add a rank's new steps; return its newest complete windows, oldest first."""
        key = (steps.user, steps.job, steps.attempt, steps.rank, steps.pid)
        self._seen.add(key)
        windows = self._ranks.setdefault(key, _Windows(self._window_s))
        for step in steps.new:
            windows.add(step)
        return tuple(windows.whole)

    def end_look(self) -> None:
        """Forget the processes that were not taken since the last call."""
        self._ranks = {key: windows for key, windows in self._ranks.items() if key in self._seen}
        self._seen = set()


class _Windows:
    def __init__(self, window_s: float) -> None:
        self.whole: deque[StepWindow] = deque(maxlen=KEPT)
        self._window_s = window_s
        self._size = 1
        self._first = 0
        self._steps: list[StepFacts] = []

    def add(self, step: StepFacts) -> None:
        if step.step < 0:
            return
        if self._steps and not self._first <= step.step < self._first + self._size:
            self._close()
        if not self._steps:
            self._first = step.step - step.step % self._size
        self._steps.append(step)
        if step.step == self._first + self._size - 1:
            self._close()

    def _close(self) -> None:
        window = _make_window(self._first, self._size, self._steps)
        self._steps = []
        self.whole.append(window)
        wanted = 1
        while wanted < SIZE_MAX and wanted * window.step_s < self._window_s:
            wanted *= 2
        if wanted > self._size or wanted * SHRINKS <= self._size:
            self._size = wanted


def _make_window(first: int, size: int, steps: list[StepFacts]) -> StepWindow:
    whole = round(_compute_mean(max(0.0, step.seconds - step.checkpoint_s) for step in steps), 6)
    told: dict[str, float | None] = {}
    for name in _TOLD:
        values = [value for step in steps if (value := getattr(step, name)) is not None]
        told[name] = round(_compute_mean(values), 6) if len(values) == len(steps) else None
    return StepWindow(first, size, len(steps), whole, **told)


def _compute_mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)

"""Detects a stalled job from its slowest rank on this node, and names the ranks that the others wait for.

The time limit follows from the job's own history: its usual step, its longest step, its pauses. Phases with long pauses
(between steps, in a save, in the first steps) have a minimum of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.training.robust_series import compute_usual_range
from healthd.training.watchdog_limits import Limits

ENDING = ("leaving", "aborting", "done")  # the first two have their own deadlines
GONE_WELL = ("done", "leaving")
PAUSES_KEPT, SAVES_KEPT = 64, 16


class JobStall(NamedTuple):
    """A stalled job. `behind` are the ranks that have not reached the point where others wait; empty if all are equal.

    `done` are the ranks that have ended their loop, so that others wait for them in vain.
    """

    slowest: RankSteps
    place: str
    waited_s: float
    limit_s: float
    behind: tuple[int, ...]
    dead: tuple[int, ...]
    waiting: tuple[int, ...]
    done: tuple[int, ...] = ()


class _ProgressMark(NamedTuple):
    """The progress of the slowest rank: two equal marks at different times mean no progress."""

    completed: int
    place: str


class JobProgress:
    """One attempt of a job on this node. `stall` describes it while `holds`; None if not known."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._steps_s: deque[float] = deque(maxlen=limits.window_steps)
        self._pauses_s: deque[float] = deque(maxlen=PAUSES_KEPT)
        self._saves_s: deque[float] = deque(maxlen=SAVES_KEPT)
        self._last: StepFacts | None = None
        self._mark: _ProgressMark | None = None
        self._since = 0.0
        self._moved = False  # until then a stall that an earlier process reported may still hold
        self._raised_at: int | None = None
        self.stall: JobStall | None = None

    def look(self, ranks: Sequence[RankSteps], monotonic: float) -> bool | None:
        """Update from `ranks`, all of one attempt on this node, at `monotonic` seconds."""
        living = [rank for rank in ranks if rank.alive]
        if not living:
            self._mark = None
            return False
        self._learn(min(living, key=lambda rank: rank.rank).new)
        training = [rank for rank in living if rank.phase not in ENDING]
        slowest = min(training or living, key=_measure_progress)
        mark = _ProgressMark(slowest.completed, self._place(slowest))
        idle = all(rank.phase == "starting" for rank in training)
        if mark != self._mark or idle:
            self._moved = self._moved or self._mark is not None or idle
            self._mark, self._since = mark, monotonic
        waited_s = monotonic - self._since
        limit_s = (
            self._limit_s(mark.place) if waited_s > self._limits.stall_floor_s else waited_s
        )  # expensive and rarely needed
        if waited_s > limit_s:
            if self._raised_at is None:
                self._raised_at = mark.completed
            self.stall = _make_stall(slowest, mark.place, waited_s, limit_s, ranks)
            return True
        if self._raised_at is None:
            return False if self._moved else None
        if 0 <= mark.completed - self._raised_at < self._limits.stall_clear_steps:
            return None
        self._raised_at = None
        return False

    def _learn(self, steps: Iterable[StepFacts]) -> None:
        for step in steps:
            if self._last is not None and step.ordinal <= self._last.ordinal:
                continue
            if self._last is not None and step.ordinal == self._last.ordinal + 1:
                self._pauses_s.append(max(0.0, step.started_at - self._last.started_at - self._last.seconds))
            self._last = step
            if step.checkpoint_s > 0:
                self._saves_s.append(step.checkpoint_s)
            if step.ordinal >= self._limits.warm_up_steps:
                self._steps_s.append(max(0.0, step.seconds - step.checkpoint_s))

    def _place(self, rank: RankSteps) -> str:
        if rank.section == "checkpoint":
            return "checkpoint"
        if rank.phase == "between":
            return "pause"
        return "step" if rank.completed >= self._limits.warm_up_steps and self._steps_s else "warm-up"

    def _limit_s(self, place: str) -> float:
        limits = self._limits
        if place == "checkpoint":
            return max(limits.checkpoint_floor_s, limits.pause_times_longest * max(self._saves_s, default=0.0))
        if place == "pause":
            return max(limits.pause_floor_s, limits.pause_times_longest * max(self._pauses_s, default=0.0))
        if place == "warm-up":
            return limits.warm_up_floor_s
        usual = compute_usual_range(self._steps_s)
        return max(
            limits.stall_floor_s if self._saves_s else limits.unsure_floor_s,
            limits.stall_times_usual * usual.centre,
            usual.centre + limits.stall_spreads * usual.spread,
            limits.stall_times_longest * max(self._steps_s),
        )


def _measure_progress(rank: RankSteps) -> tuple[int, int]:
    """Return a rank's progress; waiting in a collective is later in the step than anything else."""
    in_step = 0 if rank.phase != "step" else 2 if rank.section == "communication" else 1
    return rank.completed, in_step


def _make_stall(
    slowest: RankSteps, place: str, waited_s: float, limit_s: float, ranks: Sequence[RankSteps]
) -> JobStall:
    dead = tuple(sorted(r.rank for r in ranks if not r.alive and r.phase not in GONE_WELL))
    training = [rank for rank in ranks if rank.alive and rank.phase not in ENDING]
    furthest = max(_measure_progress(rank) for rank in training)
    behind = tuple(sorted(rank.rank for rank in training if _measure_progress(rank) < furthest))
    waiting = tuple(sorted(rank.rank for rank in training if _measure_progress(rank) == furthest))
    done = tuple(sorted(rank.rank for rank in ranks if rank.phase == "done"))
    return JobStall(slowest, place, waited_s, limit_s, behind, dead, waiting, done)

"""Decides when a job's rows are judged and combines passes: a culprit is named in two of three disjoint passes. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from remediator.detection.stragglers.repeat_culprits import PASSES, TIMES, repeat_culprits_of
from remediator.detection.stragglers.straggler_judgement import judge_stragglers, usual_times
from remediator.detection.stragglers.straggler_verdict import Culprit, SlowdownKind, StragglerVerdict
from remediator.monitoring.heartbeat_table import HeartbeatTable
from remediator.monitoring.heat_watch import HeatWatch
from remediator.monitoring.step_windows import WARM_UP_STEPS, NodeRankReport, StepWindowMatrix

PASS_ROWS = 32  # twice the detector's window: it then knows when the slowdown began, and detects 20 % in noise of 5 %
MOST_ARRIVED, LATE_S = 0.95, 40.0  # two reports at the usual interval


class PassConclusion(NamedTuple):
    """The conclusion of a job's last passes.

    `kind` is that of the newest pass with a culprit, or of the job's own trouble.

    `since`: when the first pass that named each culprit ended (UTC s). `first_step`: of the newest such verdict.
    """

    kind: SlowdownKind
    culprits: tuple[Culprit, ...] = ()
    verdict: StragglerVerdict | None = None


class AnalysisPasses:
    """Judges a job as its rows arrive. `last` is the end of the newest pass in UTC seconds; 0 before the first."""

    def __init__(self) -> None:
        self.timings = StepWindowMatrix()
        self.heat = HeatWatch()
        self.last = 0.0
        self.since: dict[int, float] = {}  # by rank: since when it has been named
        self._past: dict[int, float] = {}  # by rank: usual own seconds in its first pass
        self._verdicts: deque[StragglerVerdict] = deque(maxlen=PASSES)
        self._next = -1
        self._grid, self._frontier = 0, -1
        self._full_at: float | None = None

    def take(self, heard: Iterable[NodeRankReport], at: float = 0.0, heartbeats: HeartbeatTable | None = None) -> None:
        """Take in what nodes report of their ranks, as `StepWindowMatrix.take` does."""
        heard = list(heard)
        self.timings.take(heard, at, heartbeats)
        rows = self.timings
        self.heat.take(heard, rows.frontier, heartbeats)
        if rows.grid != self._grid or rows.frontier < self._frontier:  # rows rebuilt, or the job went back
            self._next, self._grid, self._full_at = -1, rows.grid, None
        self._frontier = rows.frontier
        if self._next < 0 <= rows.frontier:
            warm_up = -(-WARM_UP_STEPS // rows.grid)
            self._next = rows.frontier + 1 + warm_up

    def judge(self, now: float) -> bool:
        """Judge if it is time; return whether it was."""
        if self._next < 0 or self.timings.frontier < self._next + PASS_ROWS - 1:
            return False
        self._next = max(self._next, self.timings.oldest)  # no pass for a long time
        end = self._next + PASS_ROWS
        if self._full_at is None:
            self._full_at = now
        if self.timings.arrived(end - 1) < MOST_ARRIVED and now - self._full_at < LATE_S:
            return False
        first = self._next
        self._next, self._full_at = end, None  # set first: rows that cannot be judged are not retried forever
        trace = self.timings.trace(first, end)
        past = np.array([self._past.get(rank, np.nan) for rank in trace.ranks.tolist()])
        self._verdicts.append(judge_stragglers(trace, past))
        for rank, seconds in zip(trace.ranks.tolist(), usual_times(trace).tolist(), strict=True):
            if np.isfinite(seconds):
                self._past.setdefault(rank, seconds)
        self.last = now
        named = {culprit.rank for each in self._verdicts for culprit in each.culprits}
        self.since = {rank: self.since.get(rank, now) for rank in named}
        return True

    @property
    def conclusion(self) -> PassConclusion | None:
        """Return the conclusion of the last passes; None before the second, when nothing can have lasted."""
        if len(self._verdicts) < TIMES:
            return None
        culprits = repeat_culprits_of(list(self._verdicts))
        if culprits:
            ranks = {culprit.rank for culprit in culprits}
            newest = next(v for v in reversed(self._verdicts) if ranks & {c.rank for c in v.culprits})
            return PassConclusion(newest.verdict, culprits, newest)
        newest = self._verdicts[-1]
        again = sum(v.verdict is newest.verdict for v in self._verdicts) >= TIMES
        if newest.culprits or not again or newest.verdict is SlowdownKind.NOBODY:
            return PassConclusion(SlowdownKind.NOBODY)
        return PassConclusion(newest.verdict, (), newest)

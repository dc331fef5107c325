"""Whether an NCCL job stands still, by its ranks' counts of collectives over time, and whom it waits for.

The counts decide, not the status that NCCL reports: RAS calls a job without progress healthy, and a moving one
mismatched, because ranks are asked one after the other.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from healthd.collectors.nccl_ras import NcclRasSample, RasJob, RasSuspect
from healthd.findings.facts import LevelFact, Moment, judge_level
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "nccl"
CODES = {
    "rank_missing": "has not made the collective call in which others wait",
    "rank_silent": "no longer answers",
    "calls_differ": "made other collective calls than most",
    "stalled": "no single rank can be named",
}
PAUSES = 32  # remembered, of each job
USUAL_SHARE = 0.94  # of the last pauses are no longer than the usual one: two of 32 may be saves
ROUNDS_MIN = 10  # readings at which the slowest rank had got on, before a job's usual pause is known
TIMES_LONGER = 3.0
NAMED_MAX = 4  # in the text


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `nccl` of the thresholds."""

    still_after_s: float
    start_after_s: float
    forget_after_s: float


@dataclass
class _Job:
    """`still_since`: when its counts had their present values for the first time. `blamed`: pauses of the same suspects.

    `rounds`: readings at which the slowest rank had got on. One that still compiles does not, while others run ahead.
    """

    still_since: float
    seen_at: float
    latest: RasJob
    rounds: int = 0
    pauses: deque[float] = field(default_factory=lambda: deque(maxlen=PAUSES))
    blamed: dict[tuple[str, tuple[RasSuspect, ...]], float] = field(default_factory=dict)


class NcclRasCheck:
    """Remembers each job's pauses: how long it usually makes no progress, and how long for the sake of the same ranks."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._jobs: dict[str, _Job] = {}

    def judge(self, sample: NcclRasSample, now: Moment) -> list[LevelFact]:
        """Return a fact per job that stands still. A job without an answer is unknown, until it is forgotten."""
        for job in sample.jobs:
            self._follow(job, sample.at)
        gone = self._limits.forget_after_s
        self._jobs = {name: job for name, job in self._jobs.items() if sample.at - job.seen_at <= gone}
        return [fact for job in self._jobs.values() for fact in self._judge_job(job, sample.at, now)]

    def _follow(self, job: RasJob, at: float) -> None:
        known = self._jobs.get(job.job)
        if known is None:
            self._jobs[job.job] = _Job(still_since=at, seen_at=at, latest=job)
            return
        if job.moved:
            paused_s = known.seen_at - known.still_since  # at least
            blame = known.latest.kind, known.latest.suspects
            if blame[0] and known.rounds >= ROUNDS_MIN:
                known.blamed[blame] = max(paused_s, known.blamed.get(blame, 0.0))
                known.blamed = dict([*known.blamed.items()][-PAUSES:])
            known.pauses.append(paused_s)
            known.still_since = at
            known.rounds += job.least > known.latest.least
        known.seen_at, known.latest = at, job

    def _judge_job(self, job: _Job, at: float, now: Moment) -> list[LevelFact]:
        latest = job.latest
        component = Component(ComponentKind.RANK, name=f"nccl {latest.job}")
        still_s = job.seen_at - job.still_since
        if job.seen_at < at:
            return [fact for code in CODES for fact in judge_level(None, now, (CHECK, code), component, "")]
        if not latest.kind or latest.kind not in CODES or still_s < self._limit_s(job):
            return []
        suspects = "; ".join(map(_describe_suspect, latest.suspects[:NAMED_MAX]))
        more = f" and {latest.suspects_total - NAMED_MAX} more" if latest.suspects_total > NAMED_MAX else ""
        who = f"{suspects}{more} {CODES[latest.kind]}" if suspects else CODES[latest.kind]
        summary = f"an NCCL job of {latest.ranks} ranks has made no progress for {still_s:.0f} s: {who}"
        evidence: Evidence = {
            "job": latest.job,
            "ranks": latest.ranks,
            "waiting": latest.waiting,
            "still_s": round(still_s),
            "suspects": suspects + more,
        }
        if latest.suspects_total == 1:
            (one,) = latest.suspects
            evidence |= {"rank": one.rank, "host": one.host, "pid": one.pid, "gpu": one.gpu}
        return judge_level(
            True, now, (CHECK, latest.kind), component, summary[:300], severity=Severity.WARNING, evidence=evidence
        )

    def _limit_s(self, job: _Job) -> float:
        """Return how long this job may stand still: longer than usual, and longer than it ever waited for these ranks."""
        if job.rounds < ROUNDS_MIN:
            return self._limits.start_after_s
        usual = sorted(job.pauses)[int(USUAL_SHARE * (len(job.pauses) - 1))]
        blamed = job.blamed.get((job.latest.kind, job.latest.suspects), 0.0)
        return max(self._limits.still_after_s, TIMES_LONGER * usual, TIMES_LONGER * blamed)


def _describe_suspect(suspect: RasSuspect) -> str:
    return f"rank {suspect.rank} of {suspect.size} (host {suspect.host}, pid {suspect.pid}, GPU {suspect.gpu})"

"""Training that stalls, diverges or slows down, from the steps that this node's ranks report.

All are warnings: a job's problem says nothing about its node, which stays available to other jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from math import isfinite
from types import MappingProxyType
from typing import NamedTuple

from healthd.findings.facts import LevelFact, Moment, Raise, Unknown
from healthd.samples.rank_steps import RankSteps
from healthd.training.idle_ranks import IdleRank, IdleRanks
from healthd.training.rank_numbers import RankNumbers
from healthd.training.stall_detection import JobProgress, JobStall
from healthd.training.watchdog_limits import Limits
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

__all__ = ["CHECK", "CODES", "Limits", "TrainingCheck"]

CHECK = "training"
CODES = (
    "stalled",
    "rank_idle",
    "loss_not_finite",
    "loss_spike",
    "gradient_spike",
    "throughput_low",
    "communication_share",
)
SPIKES = ("loss_spike", "gradient_spike")
RANKS_NAMED = 16
JOBS_MAX = 64  # any user may write pages and so invent jobs; a ledger full of them would hide real faults
NAME_MAX = 200

_WORDS = {
    "loss_spike": "the loss of {job} is {value:.4g}, usual is {usual:.4g}",
    "gradient_spike": "the gradient norm of {job} is {value:.4g}, usual is {usual:.4g}",
    "throughput_low": "{job} has slowed down to {value:.4g} a second (tokens, or steps if it counts none), usual is {usual:.4g}",
    "communication_share": "{job} spends {value:.0%} of its steps in communication, usual is {usual:.0%}",
}
_WORDS_NOT_FINITE = "the gradient norm of {job} is {value}, for longer than a loss scale needs to adapt"


class _Job(NamedTuple):
    """A job name per user, so that one user's ranks do not affect the judgement of another's.

    In findings `user` is -1 if only one user has a job of that name.
    """

    name: str
    attempt: int
    user: int


_Rank = tuple[str, int, int, int, int]


class TrainingCheck:
    """Remembers each job's pace and each rank's values. A job has one finding of a kind, whichever ranks show it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._progress: dict[_Job, JobProgress] = {}
        self._idle: dict[_Job, IdleRanks] = {}
        self._numbers: dict[_Rank, RankNumbers] = {}

    def judge(
        self, ranks: Sequence[RankSteps], now: Moment, gpu_percent: Mapping[str, int | None] = MappingProxyType({})
    ) -> list[LevelFact]:
        """Return all current facts of jobs with living local ranks. Findings of ended jobs are cleared.

        Args:
            ranks: the ranks of this node.
            now: the time.
            gpu_percent: each GPU's utilisation, by UUID.
        """
        facts: list[LevelFact] = []
        living = _limit_jobs(_identify_job(rank) for rank in ranks if rank.alive)
        shown = sorted(
            (rank for rank in ranks if _identify_job(rank) in living), key=lambda r: (_identify_job(r), r.rank, r.pid)
        )
        self._progress = {job: self._progress.get(job) or JobProgress(self._limits) for job in living}
        self._idle = {job: self._idle.get(job) or IdleRanks(self._limits) for job in living}
        self._numbers = {
            _identify_rank(rank): self._numbers.get(_identify_rank(rank)) or RankNumbers(self._limits)
            for rank in shown
            if rank.alive
        }
        users = Counter(job[:2] for job in living)
        for job, of_job in groupby(shown, _identify_job):
            called = job if users[job[:2]] > 1 else job._replace(user=-1)
            local = list(of_job)
            facts += self._judge_job(called, self._progress[job], local, now)
            facts += _judge_idle_ranks(called, self._idle[job].look(local, gpu_percent, now.monotonic), now)
        return facts

    def _judge_job(self, job: _Job, progress: JobProgress, ranks: list[RankSteps], now: Moment) -> list[LevelFact]:
        moving = progress.look(ranks, now.monotonic)
        facts = _judge_stall(job, moving, progress.stall, now)
        numbers = {rank.rank: self._numbers[_identify_rank(rank)] for rank in ranks if rank.alive}
        for rank in ranks:
            if rank.alive:
                for step in rank.new:
                    self._numbers[_identify_rank(rank)].add(step)
        facts += _judge_non_finite_values(job, numbers, now)
        for code in _WORDS:
            facts += _judge_series(job, code, numbers, now)
        return facts


def _identify_job(rank: RankSteps) -> _Job:
    return _Job(rank.job, rank.attempt, rank.user)


def _identify_rank(rank: RankSteps) -> _Rank:
    return rank.job, rank.attempt, rank.user, rank.rank, rank.pid


def _limit_jobs(jobs: Iterable[_Job]) -> set[_Job]:
    """Return the jobs to watch, up to the limit, alternating between users."""
    by_user: dict[int, list[_Job]] = {}
    for job in sorted(set(jobs)):
        by_user.setdefault(job.user, []).append(job)
    in_turn = zip_longest(*(by_user[user] for user in sorted(by_user)))
    return set([job for turn in in_turn for job in turn if job is not None][:JOBS_MAX])


def _make_job_component(job: _Job) -> Component:
    whose = f" of user {job.user}" if job.user >= 0 else ""
    return Component(ComponentKind.RANK, name=f"{job.name[:NAME_MAX]}.{job.attempt}{whose}")


def _raise_job_fact(job: _Job, code: str, summary: str, now: Moment, evidence: Evidence) -> Raise:
    return Raise(
        check=CHECK,
        code=code,
        component=_make_job_component(job),
        severity=Severity.WARNING,
        summary=summary[:300],
        at=now.wall,
        evidence={"job": job.name[:NAME_MAX], "attempt": job.attempt, **evidence},
    )


def _judge_stall(job: _Job, holds: bool | None, stall: JobStall | None, now: Moment) -> list[LevelFact]:  # noqa: FBT001 - the reading
    if holds is None:
        return [Unknown(CHECK, "stalled", _make_job_component(job))]
    if not holds or stall is None:
        return []
    slowest = stall.slowest
    where = f"{slowest.phase}/{slowest.section}" if slowest.section else slowest.phase
    if stall.dead:
        who = f"rank {_format_ranks(stall.dead)} is dead"
    elif stall.behind:
        who = f"rank {_format_ranks(stall.behind)} has not arrived"
    elif stall.done:
        who = f"rank {_format_ranks(stall.done)} has finished training, the others have not"
    else:
        who = "all ranks of this node wait: the missing one is elsewhere"
    evidence: Evidence = {
        "rank": slowest.rank,
        "phase": slowest.phase,
        "section": slowest.section,
        "step": slowest.step,
        "waited_s": round(stall.waited_s, 1),
        "limit_s": round(stall.limit_s, 1),
        "not_arrived": _format_ranks(stall.behind),
        "dead": _format_ranks(stall.dead),
        "waiting": _format_ranks(stall.waiting),
        "done": _format_ranks(stall.done),
        "missing": "here" if stall.behind or stall.dead else "done" if stall.done else "elsewhere",
    }
    summary = f"{job.name} has stalled for {stall.waited_s:.0f} s in step {slowest.step} ({where}, rank {slowest.rank}): {who}"
    return [_raise_job_fact(job, "stalled", summary, now, evidence)]


def _judge_idle_ranks(job: _Job, idle: Sequence[IdleRank], now: Moment) -> list[LevelFact]:
    if not idle:
        return []
    first = idle[0]
    ranks = _format_ranks(each.rank.rank for each in idle)
    evidence: Evidence = {
        "ranks": ranks,
        "step": first.rank.step,
        "section": first.rank.section,
        "idle_s": round(first.idle_s, 1),
        "cpu_percent": round(first.cpu_percent, 1),
    }
    if first.gpu_percent is not None:
        evidence |= {"gpu_percent": first.gpu_percent}
    gpu = "its GPU is not known" if first.gpu_percent is None else f"its GPU is busy for {first.gpu_percent} %"
    summary = (
        f"rank {ranks} of {job.name} computes nothing in step {first.rank.step} ({first.rank.section}):"
        f" its processes use {first.cpu_percent:.0f} % of a core, {gpu}"
    )
    return [_raise_job_fact(job, "rank_idle", summary, now, evidence)]


def _judge_non_finite_values(job: _Job, numbers: dict[int, RankNumbers], now: Moment) -> list[LevelFact]:
    bad = [rank for rank, known in numbers.items() if known.not_finite.holds]
    if not bad:
        return []
    summary = f"the loss of {job.name} is not finite, on rank {_format_ranks(bad)}"
    loss = _encode_number(numbers[bad[0]].last_loss or 0.0)
    evidence: Evidence = {
        "ranks": _format_ranks(bad),
        "loss": loss,
        **_find_last_good_step("loss_not_finite", numbers, bad),
    }
    return [_raise_job_fact(job, "loss_not_finite", summary, now, evidence)]


def _find_last_good_step(code: str, numbers: dict[int, RankNumbers], bad: list[int]) -> Evidence:
    """Return the last step at which all these ranks were good: training may resume from before it."""
    steps = [numbers[rank].good_steps.get(code) for rank in bad]
    known = [step for step in steps if step is not None]
    return {"last_good_step": min(known)} if known and len(known) == len(steps) else {}


def _judge_series(job: _Job, code: str, numbers: dict[int, RankNumbers], now: Moment) -> list[LevelFact]:
    reported = {rank: each for rank, known in numbers.items() if (each := known.series[code]).known}
    bad = [rank for rank, each in reported.items() if each.holds]
    if not bad:
        unknown = any(each.holds is None for each in reported.values())
        return [Unknown(CHECK, code, _make_job_component(job))] if unknown else []
    worst = reported[bad[0]]
    usual = worst.usual.centre if worst.usual else 0.0
    evidence: Evidence = {
        "ranks": _format_ranks(bad),
        "value": _encode_number(worst.value),
        "usual": _encode_number(usual),
    }
    evidence |= _find_last_good_step(code, numbers, bad) if code in SPIKES else {}
    words = _WORDS[code] if isfinite(worst.value) else _WORDS_NOT_FINITE
    summary = words.format(job=job.name, value=worst.value, usual=usual)
    return [_raise_job_fact(job, code, f"{summary}, on rank {_format_ranks(bad)}", now, evidence)]


def _encode_number(value: float) -> float | str:
    """Return the value as JSON can carry it."""
    return value if isfinite(value) else str(value)


def _format_ranks(ranks: Iterable[int]) -> str:
    named = sorted(ranks)
    more = f" and {len(named) - RANKS_NAMED} more" if len(named) > RANKS_NAMED else ""
    return ", ".join(map(str, named[:RANKS_NAMED])) + more

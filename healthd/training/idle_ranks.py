"""Detects a rank that computes nothing in the middle of a step: neither its processes nor its GPU do any work.

Ranks that wait for others in a collective keep their GPUs busy, and a rank that compiles, saves or reads data uses the
CPU. So an idle rank is the one that others wait for, unless its loop waits for something outside of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from healthd.samples.rank_steps import RankSteps
from healthd.training.watchdog_limits import Limits

ON_GPU = ("forward", "backward", "optimizer")  # sections in which a rank that waits for data or a save is not
GPU_BUSY_PERCENT = 5
CPU_SLACK_S = 0.2  # one reading is exact to a tick per thread


class IdleRank(NamedTuple):
    """A rank that computes nothing. `cpu_percent` is of one core; `gpu_percent` is None if its GPU is not known."""

    rank: RankSteps
    idle_s: float
    cpu_percent: float
    gpu_percent: int | None


class _IdleSpan(NamedTuple):
    """Since when a rank has used no CPU (monotonic s), at which place of its loop, and its CPU seconds then."""

    place: tuple[int, str, str]
    since: float
    cpu_s: float


class IdleRanks:
    """The idle ranks of one attempt of a job on this node."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._spans: dict[tuple[int, int], _IdleSpan] = {}
        self._found: dict[tuple[int, int], IdleRank] = {}

    def look(
        self, ranks: Sequence[RankSteps], gpu_percent: Mapping[str, int | None], monotonic: float
    ) -> list[IdleRank]:
        """Update from `ranks` at `monotonic` seconds; `gpu_percent` is each GPU's utilisation by UUID."""
        spans: dict[tuple[int, int], _IdleSpan] = {}
        found: dict[tuple[int, int], IdleRank] = {}
        for rank in ranks:
            if not rank.alive or rank.phase != "step" or rank.section not in ON_GPU:
                continue
            key, place = (rank.rank, rank.pid), (rank.completed, rank.phase, rank.section)
            before = self._spans.get(key)
            if before is not None and before.place != place:
                before = None
            if rank.cpu_s is None:  # not read this time
                if before is not None:
                    spans[key] = before
                    found |= {key: self._found[key]} if key in self._found else {}
            elif rank.completed >= self._limits.warm_up_steps:
                idle = self._judge(rank, before, gpu_percent.get(rank.gpu), monotonic)
                spans[key] = before if before is not None and idle else _IdleSpan(place, monotonic, rank.cpu_s)
                if idle and idle.idle_s >= self._limits.rank_idle_s:
                    found[key] = idle
        self._spans, self._found = spans, found
        return list(found.values())

    def _judge(
        self, rank: RankSteps, before: _IdleSpan | None, gpu_percent: int | None, monotonic: float
    ) -> IdleRank | None:
        """Return since when the rank does no work; None if it does, or is looked at for the first time."""
        if before is None or rank.cpu_s is None or (gpu_percent or 0) >= GPU_BUSY_PERCENT:
            return None
        idle_s, used_s = monotonic - before.since, rank.cpu_s - before.cpu_s
        if used_s > CPU_SLACK_S + idle_s * self._limits.rank_idle_cpu_percent / 100:
            return None
        return IdleRank(rank, idle_s, 100 * used_s / max(idle_s, 1.0), gpu_percent)

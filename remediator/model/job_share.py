"""One node's share of one attempt of a job, summed up per report: a view of a job of 100 000 ranks then sums up nodes.

Pure.

Times are seconds; `UNTOLD` if none was reported.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remediator.model.journal_records import JobRef
from vocabulary.messages.wire import RankStatus

UNTOLD = -1.0


class JobShare(msgspec.Struct, frozen=True, gc=False):
    """The node's ranks of that attempt, each with its stage and its *own* time a step, without communication.

    In lockstep all steps take equally long, and the slow rank is the one that does not wait. The other figures are of
    living ranks: their number, the job's size (0: unknown), their newest step (-1: none) and report, their step times,
    and their number per phase.
    """

    ref: JobRef
    ranks: tuple[RankStatus, ...]
    stages: tuple[int, ...]
    own_s: tuple[float, ...]
    living: int
    world: int
    step: int
    at: float  # UTC s
    steps_s: tuple[float, ...]
    phases: dict[str, int]  # the cycle collector would track a tuple of pairs


def build_job_shares(ranks: Sequence[RankStatus]) -> tuple[JobShare, ...]:
    """Return a node's share of each attempt with a living rank there, by job and attempt."""
    found: dict[tuple[str, int], list[RankStatus]] = {}
    for rank in ranks:
        found.setdefault((rank.job, rank.attempt), []).append(rank)
    shares = [_build_job_share(JobRef(*key), found[key]) for key in sorted(found)]
    return tuple([share for share in shares if share.living])


def _build_job_share(ref: JobRef, ranks: Sequence[RankStatus]) -> JobShare:
    """One pass, optimised: it runs for every rank of every report."""
    living, world, newest, at = 0, 0, -1, 0.0
    own_s: list[float] = []
    steps_s: list[float] = []
    phases: dict[str, int] = {}
    for rank in ranks:
        own = UNTOLD
        if rank.alive:
            living += 1
            step_s = rank.step_median or rank.step_seconds
            if step_s > 0:
                steps_s.append(step_s)
                own = step_s - rank.sections_median.get("communication", 0.0)
                own = own if own > 0 else 0.0
            phases[rank.phase] = phases.get(rank.phase, 0) + 1
            world = max(world, rank.world)
            newest = max(newest, rank.step)
            at = max(at, rank.at)
        own_s.append(own)
    return JobShare(
        ref=ref,
        ranks=tuple(ranks),
        stages=tuple([rank.pipeline_stage for rank in ranks]),
        own_s=tuple(own_s),
        living=living,
        world=world,
        step=newest,
        at=at,
        steps_s=tuple(steps_s),
        phases=phases,
    )

"""One node's part in one attempt of a job, added up when it reports: who looks at a job of 100 000 ranks adds up nodes. Pure.

Times are seconds; `UNTOLD` where nobody tells one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from remediator.model.journal_records import JobRef
from vocabulary.messages.wire import RankStatus

UNTOLD = -1.0


class JobShare(msgspec.Struct, frozen=True, gc=False):
    """The node's ranks of that attempt, as told, and of each its stage and its *own* time a step, without communication.

    In lockstep all steps take equally long, and the slow rank is the one that does not wait. The other figures are of living
    ranks: how many, what they think the job's size is (0: nobody says), their newest step (-1: none) and word, how long their
    steps take, and how many are in which phase.
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
    phases: dict[str, int]  # a tuple of pairs would be tracked by the collector of cycles


def build_job_shares(ranks: Sequence[RankStatus]) -> tuple[JobShare, ...]:
    """What a node's ranks are to each attempt of a job that has a living one there, by job and attempt."""
    found: dict[tuple[str, int], list[RankStatus]] = {}
    for rank in ranks:
        found.setdefault((rank.job, rank.attempt), []).append(rank)
    shares = [_build_job_share(JobRef(*key), found[key]) for key in sorted(found)]
    return tuple([share for share in shares if share.living])


def _build_job_share(ref: JobRef, ranks: Sequence[RankStatus]) -> JobShare:
    """One walk, and few words of Python: it is done for every rank of every report."""
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

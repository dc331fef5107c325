"""One node's share of one attempt of a job, summed up per report: a view of a job of 100 000 ranks then sums up nodes.

Pure.

Times are seconds; `UNTOLD` if none was reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from remediator.model.journal_records import JobRef
from vocabulary.messages.heartbeat import RANK, SINGLE, Heartbeat, finite
from vocabulary.messages.wire import RankStatus

UNTOLD = -1.0


class RankProgress(NamedTuple):
    """What a rank does at the time of its beacon (UTC s)."""

    step: int
    at: float
    phase: str


class JobShare(msgspec.Struct, frozen=True, gc=False):
    """The node's ranks of that attempt, each with its stage and its *own* time a step, without communication.

    In lockstep all steps take equally long, and the slow rank is the one that does not wait. The other figures are of
    living ranks: their number, the job's size (0: unknown), their newest step (-1: none) and report, their step times,
    and their number per phase.
    """

    ref: JobRef
    ranks: tuple[RankStatus, ...]  # perhaps without their progress: `progress_of` has it
    places: tuple[int, ...]  # of these ranks in the report
    communication: tuple[int, ...]  # of their communication time among all section times of the report; -1: none
    stages: tuple[int, ...]
    own_s: tuple[float, ...]
    living: int
    world: int
    step: int
    at: float  # UTC s
    steps_s: tuple[float, ...]
    phases: dict[str, int]  # the cycle collector would track a tuple of pairs
    heartbeat: Heartbeat | None = None

    def progress_of(self, number: int) -> RankProgress:
        """Return what the rank with this index is doing now."""
        rank = self.ranks[number]
        if self.heartbeat is None:
            return RankProgress(rank.step, rank.at, rank.phase)
        step, at, _, _, phase, *_ = RANK.unpack_from(self.heartbeat.ranks, self.places[number] * RANK.size)
        return RankProgress(step, finite(at), self.heartbeat.words[phase])


def build_job_shares(ranks: Sequence[RankStatus]) -> tuple[JobShare, ...]:
    """Return a node's share of each attempt with a living rank there, by job and attempt."""
    found: dict[tuple[str, int], list[int]] = {}
    for place, rank in enumerate(ranks):
        found.setdefault((rank.job, rank.attempt), []).append(place)
    told = [(rank.step, rank.at, rank.step_seconds, rank.step_median, rank.phase) for rank in ranks]
    sections = list(chain.from_iterable([rank.sections_median.values() for rank in ranks]))
    communication = _find_communication(ranks)
    shares: list[JobShare] = []
    for key in sorted(found):
        places = tuple(found[key])
        own = tuple([ranks[place] for place in places])
        blank = JobShare(
            ref=JobRef(*key),
            ranks=own,
            places=places,
            communication=tuple([communication[place] for place in places]),
            stages=tuple([rank.pipeline_stage for rank in own]),
            own_s=(),
            living=sum([rank.alive for rank in own]),
            world=max([rank.world for rank in own if rank.alive], default=0),
            step=-1,
            at=0.0,
            steps_s=(),
            phases={},
        )
        if blank.living:
            shares.append(_sum_up(blank, told, sections, None))
    return tuple(shares)


def update_job_shares(shares: Sequence[JobShare], heartbeat: Heartbeat) -> tuple[JobShare, ...]:
    """Return a report's shares with the figures of a heartbeat that updates it."""
    words = heartbeat.words
    told = [
        (step, finite(at), finite(newest), finite(median), words[phase])
        for step, at, newest, median, phase, _, _, _ in RANK.iter_unpack(heartbeat.ranks)
    ]
    sections = [finite(value) for (value,) in SINGLE.iter_unpack(heartbeat.sections)]
    return tuple([_sum_up(share, told, sections, heartbeat) for share in shares])


def _find_communication(ranks: Sequence[RankStatus]) -> list[int]:
    """Return where each rank's median communication time is among all median section times; -1 without one."""
    found: list[int] = []
    before = 0
    for rank in ranks:
        names = list(rank.sections_median)
        found.append(before + names.index("communication") if "communication" in names else -1)
        before += len(names)
    return found


def _sum_up(
    share: JobShare,
    told: Sequence[tuple[int, float, float, float, str]],
    sections: Sequence[float],
    heartbeat: Heartbeat | None,
) -> JobShare:
    """One pass, optimised: it runs for every rank of a fleet."""
    newest, latest = -1, 0.0
    own_s: list[float] = []
    steps_s: list[float] = []
    phases: dict[str, int] = {}
    for rank, place, communication in zip(share.ranks, share.places, share.communication, strict=True):
        own = UNTOLD
        if rank.alive:
            step, at, seconds, median, phase = told[place]
            step_s = median or seconds
            if step_s > 0:
                steps_s.append(step_s)
                own = step_s - sections[communication] if communication >= 0 else step_s
                own = own if own > 0 else 0.0
            phases[phase] = phases.get(phase, 0) + 1
            newest = max(newest, step)
            latest = max(latest, at)
        own_s.append(own)
    return JobShare(
        ref=share.ref,
        ranks=share.ranks,
        places=share.places,
        communication=share.communication,
        stages=share.stages,
        own_s=tuple(own_s),
        living=share.living,
        world=share.world,
        step=newest,
        at=latest,
        steps_s=tuple(steps_s),
        phases=phases,
        heartbeat=heartbeat,
    )

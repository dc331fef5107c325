"""Finds the rank that a stalled job waits for, from each rank's position in its step. Pure.

Nodes know how long a step of their job may take, so they report the stall. A witness, evidence that does not come
from the trainer, shortens that: a rank that uses neither CPU nor GPU, or that NCCL's own counts name. Only the controller sees all ranks, so only
it can tell the missing rank from those that wait. Beacons report steps and sections, not collectives: where the ranks
that did not arrive are on several nodes, some of them may be waiting themselves, and no culprit is named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from remediator.detection.hangs.call_records import Group, Operation, Snapshot
from remediator.detection.hangs.hang_verdict import judge_hang
from remediator.model.journal_records import JobRef
from remediator.monitoring.detector_findings import build_detector_finding, detector_origin
from remediator.monitoring.rank_claims import is_rank_moving
from remediator.monitoring.step_windows import NodeRankReport
from remediator.monitoring.straggler_findings import job_component
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import RankStatus
from vocabulary.stacks.stack_places import OFF_THE_GPU, StackPlace

SOURCE = "hang"
STALLED = "training/stalled"
IDLE, MISSING = "training/rank_idle", "nccl/rank_missing"
STILL_S, STILL_STEPS = 20.0, 3.0  # without progress of any rank, and in usual steps: enough beside a witness
MOST_SAY_SO = 0.5  # of the nodes with living ranks of the job; a single one may be wrong
CULPRITS_MAX = 0.25  # of the ranks: if more did not arrive, they wait elsewhere
ENDING = ("leaving", "aborting", "done")  # sections with deadlines of their own
GONE_WELL = ("done", "leaving")
ON_GPU = ("forward", "backward", "optimizer")  # a rank that stays in these gets no answer from its GPU
NCCL_GIVES_UP_S = 600.0  # the default: a program that lets ranks wait longer must have raised it
RANKS_NAMED = 16
_GROUP = "step"


class StalledJob(NamedTuple):
    """What is known of a job that its nodes report as stalled.

    `heard`: ranks by number, from the last report of each node that still reports; `silent`: ranks of the other nodes.
    No rank is in both, and together they are complete. `stalled`: the nodes that report the stall; `sick`: those that
    assert a fault of their own. `witnessed`: the ranks that a witness names.
    """

    ref: JobRef
    heard: Sequence[NodeRankReport]
    silent: Mapping[int, str]
    stalled: Collection[str]
    sick: Collection[str]
    witnessed: Collection[int] = ()


def is_rank_named(finding: Finding, node: str, rank: RankStatus) -> bool:
    """Return whether NCCL's counts, in a finding of any node, name this rank: by its process, or its number in the job."""
    said = finding.evidence
    numbered = said.get("rank") == rank.rank and said.get("ranks") == rank.world
    return said.get("host") == node and (said.get("pid") == rank.pid or numbered)


def stands_still(heard: Sequence[NodeRankReport]) -> bool:
    """Return whether all living ranks are in a step and have made no progress for long; weaker than a reported stall."""
    living = [(word, rank) for word in heard for rank in word.ranks if rank.alive and rank.phase not in ENDING]
    return bool(living) and all(
        rank.phase == "step" and word.sent_at - rank.at >= max(STILL_S, STILL_STEPS * rank.step_median)
        for word, rank in living
    )


def is_job_stalled(heard: Sequence[NodeRankReport], stalled: Collection[str]) -> bool:
    """Return whether enough nodes with living ranks report a stall, and none of their beacons is recent."""
    living = [(word, rank) for word in heard for rank in word.ranks if rank.alive and rank.phase not in ENDING]
    nodes = {word.node for word, _ in living}
    if not nodes or len(nodes & set(stalled)) < MOST_SAY_SO * len(nodes):
        return False
    return not any(is_rank_moving(word, rank) for word, rank in living)


def build_hang_finding(job: StalledJob, now: float) -> Finding | None:
    """Build the finding: the rank the job waits for, or that none can be named; None if all its ranks have ended."""
    ranks = {rank.rank: (word.node, rank) for word in job.heard for rank in word.ranks}
    training = {n: rank for n, (_, rank) in ranks.items() if rank.alive and rank.phase not in ENDING}
    if not training:
        return None
    dead = {n for n, (_, rank) in ranks.items() if not rank.alive and rank.phase not in GONE_WELL}
    verdict = judge_hang(_hang_snapshot(training, dead, job.silent))
    nodes = {ranks[n][0] if n in ranks else job.silent[n] for n in verdict.culprits}
    evidence: Evidence = {
        "job": job.ref.job,
        "attempt": job.ref.attempt,
        "step": max(rank.step for rank in training.values()),
        "ranks": _format_rank_list(verdict.culprits),
        "waiting": len(training) - len(set(verdict.culprits) & training.keys()),
        "dead": _format_rank_list(sorted(dead)),
        "silent": _format_rank_list(sorted(job.silent)),
    }
    everyone = len(training) + len(dead) + len(job.silent)
    if len(nodes) != 1 or len(verdict.culprits) > max(1, CULPRITS_MAX * everyone):
        return _unnamed_hang_finding(job, training, verdict.kind, evidence, ranks[min(training)][0], now)
    (node,) = nodes
    sections = {training[n].section for n in verdict.culprits if n in training}
    evidence["section"] = ", ".join(sorted(sections))
    stacks = ", ".join(sorted({training[n].stack for n in verdict.culprits if n in training} - {""}))
    evidence |= {"stack": stacks} if stacks else {}
    if verdict.culprits[0] in dead:
        critical, what = node in job.sick, "died"
    elif verdict.culprits[0] in job.silent:
        critical, what = False, "is on a silent node"
    else:
        critical, what = (
            _is_node_evidence_enough(job, node, verdict.culprits),
            "has not arrived at the call in which the others wait" + _describe_stacks(stacks),
        )
    gpus = {ranks[n][1].gpu if n in ranks else "" for n in verdict.culprits}
    gpu = next(iter(gpus)) if len(gpus) == 1 else ""
    about = (node, Component(ComponentKind.GPU, gpu) if gpu else Component(ComponentKind.HOST))
    words = f"{job.ref.job} is stuck in step {evidence['step']}: rank {evidence['ranks']} {what}"
    severity = Severity.ERROR if critical else Severity.WARNING
    return build_detector_finding(
        about, (SOURCE, verdict.kind), detector_origin(SOURCE, job.ref), severity, words, now, evidence
    )


def _describe_stacks(places: str) -> str:
    return f"; its stack is in {places}" if places not in ("", StackPlace.OTHER) else ""


def _is_node_evidence_enough(job: StalledJob, node: str, culprits: Collection[int]) -> bool:
    """Return whether the node gives enough evidence.

    A recompilation, or reading in the forward pass, looks the same at first: only the stack tells them apart.
    """
    told = [(word.sent_at - rank.at, rank) for word in job.heard for rank in word.ranks if rank.rank in culprits]
    lasts = node in job.sick or min(waited_s for waited_s, _ in told) >= NCCL_GIVES_UP_S
    on_gpu = all(rank.section in ON_GPU and rank.stack not in OFF_THE_GPU for _, rank in told)
    return ((node in job.stalled and lasts) or set(culprits) <= set(job.witnessed)) and on_gpu


def _hang_snapshot(training: Mapping[int, RankStatus], dead: Collection[int], silent: Collection[int]) -> Snapshot:
    """Model the furthest step as the one call that all ranks must join. With a dead rank, all living ranks wait for it."""
    some_off_gpu = any(rank.stack in OFF_THE_GPU for rank in training.values())
    progress = {n: _progress_key(rank, some_off_gpu) for n, rank in training.items()}
    furthest = max(progress.values())
    number = furthest[0]
    behind = set() if dead else {n for n in training if progress[n] < furthest}
    everybody = tuple(sorted({*training, *dead, *silent}))
    return Snapshot(
        operations=[
            Operation(rank=n, group=_GROUP, number=number, name=_GROUP, order=number, state="started")
            for n in sorted(training.keys() - behind)
        ],
        groups={_GROUP: Group(_GROUP, members=everybody)},
        recorded=frozenset(training),
        everybody=everybody,
        entered={(n, _GROUP): number - 1 for n in behind},
    )


def _progress_key(rank: RankStatus, some_off_gpu: bool) -> tuple[int, int]:  # noqa: FBT001 - of the whole job
    """Return a sort key: a rank that waits in a collective is further in its step than one that does anything else.

    Stacks count beside sections only where they show a rank that reads, saves or compiles: without such a rank, one in
    a collective says little about the others, whose GPUs may be in the same one.
    """
    if rank.phase != "step":
        return rank.step + 1, 0
    waits = rank.section == "communication" and rank.stack not in OFF_THE_GPU
    return rank.step, 2 if waits or (some_off_gpu and rank.stack == StackPlace.COLLECTIVE) else 1


def _unnamed_hang_finding(
    job: StalledJob, training: Mapping[int, RankStatus], kind: str, evidence: Evidence, node: str, now: float
) -> Finding:
    """Build a finding without a culprit: all ranks are in the same collective, or too many did not arrive."""
    together = all(rank.phase == "step" and rank.section == "communication" for rank in training.values())
    code = "network" if kind == "network" and together else "nobody"
    what = (
        "all ranks are in a communication call that does not end"
        if code == "network"
        else "no single rank can be named"
    )
    words = f"{job.ref.job} is stuck in step {evidence['step']}: {what}"
    about = (node, job_component(job.ref))
    return build_detector_finding(
        about, (SOURCE, code), detector_origin(SOURCE, job.ref), Severity.WARNING, words, now, evidence
    )


def _format_rank_list(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return ", ".join(map(str, ranks[:RANKS_NAMED])) + more

"""A job that stands still by its nodes' word: which rank do the others wait for? From where each rank is in its step. Pure.

Nodes know how long their job may take over a step, so they say that it stands still. Only here all ranks are seen, so
only here can the missing one be told from those that wait. Beacons tell steps and sections, not collectives: where the
ranks that did not arrive are on several nodes, some of them may be waiting themselves, and nobody is named.
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

SOURCE = "hang"
STALLED = "training/stalled"
MOST_SAY_SO = 0.5  # of the nodes with living ranks of the job; one alone may be wrong, or lie
CULPRITS_MAX = 0.25  # of the ranks: more did not arrive because they wait elsewhere
ENDING = ("leaving", "aborting", "done")  # have deadlines of their own
GONE_WELL = ("done", "leaving")
ON_GPU = ("forward", "backward", "optimizer")  # a rank that stays in there does not get its GPU's answer
NCCL_GIVES_UP_S = 600.0  # by default: a program that lets others wait for longer had to raise it
RANKS_NAMED = 16
_GROUP = "step"


class StalledJob(NamedTuple):
    """What is known of a job whose nodes say that it stands still.

    `heard` are its ranks by the last word of each node that still speaks, `silent` ranks of nodes that do not, by number;
    no rank is told of twice, and together they are all there are.
    `stalled` are the nodes that say so, `sick` those that assert a fault of their own.
    """

    ref: JobRef
    heard: Sequence[NodeRankReport]
    silent: Mapping[int, str]
    stalled: Collection[str]
    sick: Collection[str]


def is_job_stalled(heard: Sequence[NodeRankReport], stalled: Collection[str]) -> bool:
    """Whether enough of the nodes with living ranks say so, and no page of theirs was written just now."""
    living = [(word, rank) for word in heard for rank in word.ranks if rank.alive and rank.phase not in ENDING]
    nodes = {word.node for word, _ in living}
    if not nodes or len(nodes & set(stalled)) < MOST_SAY_SO * len(nodes):
        return False
    return not any(is_rank_moving(word, rank) for word, rank in living)


def build_hang_finding(job: StalledJob, now: float) -> Finding | None:
    """Who keeps the job waiting, or that nobody can be named; None if all its ranks have ended."""
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
    if verdict.culprits[0] in dead:
        grave, what = node in job.sick, "died"
    elif verdict.culprits[0] in job.silent:
        grave, what = False, "is on a node that nothing is heard of"
    else:
        grave, what = _is_node_evidence_enough(job, node, verdict.culprits), "has not arrived where the others wait"
    gpus = {ranks[n][1].gpu if n in ranks else "" for n in verdict.culprits}
    gpu = next(iter(gpus)) if len(gpus) == 1 else ""
    about = (node, Component(ComponentKind.GPU, gpu) if gpu else Component(ComponentKind.HOST))
    words = f"{job.ref.job} stands still in step {evidence['step']}: rank {evidence['ranks']} {what}"
    severity = Severity.ERROR if grave else Severity.WARNING
    return build_detector_finding(
        about, (SOURCE, verdict.kind), detector_origin(SOURCE, job.ref), severity, words, now, evidence
    )


def _is_node_evidence_enough(job: StalledJob, node: str, culprits: Collection[int]) -> bool:
    """Whether the node gives ground enough for it: what compiles again, or reads in its forward, looks the same at first."""
    told = [
        (word.sent_at - rank.at, rank.section) for word in job.heard for rank in word.ranks if rank.rank in culprits
    ]
    lasts = node in job.sick or min(waited_s for waited_s, _ in told) >= NCCL_GIVES_UP_S
    return node in job.stalled and lasts and all(section in ON_GPU for _, section in told)


def _hang_snapshot(training: Mapping[int, RankStatus], dead: Collection[int], silent: Collection[int]) -> Snapshot:
    """The step that most have come to as the one call that all must be in; with a dead rank, whoever lives waits for it."""
    furthest = max(_progress_key(rank) for rank in training.values())
    number = furthest[0]
    behind = set() if dead else {n for n, rank in training.items() if _progress_key(rank) < furthest}
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


def _progress_key(rank: RankStatus) -> tuple[int, int]:
    """A rank that waits in a collective has come further in its step than one that does anything else."""
    if rank.phase != "step":
        return rank.step + 1, 0
    return rank.step, 2 if rank.section == "communication" else 1


def _unnamed_hang_finding(
    job: StalledJob, training: Mapping[int, RankStatus], kind: str, evidence: Evidence, node: str, now: float
) -> Finding:
    """Nobody is named: all are in the same collective, or too many did not arrive."""
    together = all(rank.phase == "step" and rank.section == "communication" for rank in training.values())
    code = "network" if kind == "network" and together else "nobody"
    what = "all ranks are in communication, and it does not end" if code == "network" else "no single rank can be named"
    words = f"{job.ref.job} stands still in step {evidence['step']}: {what}"
    about = (node, job_component(job.ref))
    return build_detector_finding(
        about, (SOURCE, code), detector_origin(SOURCE, job.ref), Severity.WARNING, words, now, evidence
    )


def _format_rank_list(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return ", ".join(map(str, ranks[:RANKS_NAMED])) + more

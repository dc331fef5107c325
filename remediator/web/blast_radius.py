"""The impact of an incident's plan: its steps, the nodes, the jobs on them, and the isolation budget. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from remediator.decisions.policy import PolicyRule
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import Incident, JobRef, NodeRecord
from remediator.model.views import StatusView

NODES_NAMED = 20


class JobImpact(msgspec.Struct, frozen=True):
    """One job: how many of its nodes and living ranks are affected. `world` is its number of ranks, 0 if not reported."""

    job: str
    attempt: int
    nodes_hit: int
    nodes: int
    ranks_hit: int
    world: int


class BlastRadius(msgspec.Struct, frozen=True):
    """`stages` run in sequence, the steps of one stage in parallel. `level`: isolated nodes now, afterwards and at most."""

    stages: tuple[tuple[str, ...], ...]
    nodes: tuple[str, ...]
    isolates: bool
    jobs: tuple[JobImpact, ...]
    level: tuple[int, int, int]


def concerned_nodes(incident: Incident) -> tuple[str, ...]:
    """The nodes that an incident is about."""
    return incident.members if incident.wide else (incident.node,)


def count_job_nodes(snapshot: StateSnapshot) -> Counter[JobRef]:
    """Count the nodes of each job."""
    return Counter(ref for record in snapshot.nodes.values() for ref in record.jobs)


def affected_jobs_of(
    records: Iterable[NodeRecord], registry: ReportRegistry, crew: Mapping[JobRef, int]
) -> tuple[JobImpact, ...]:
    """The jobs on these nodes, largest first. `crew` is the result of `count_job_nodes`."""
    nodes: Counter[JobRef] = Counter()
    ranks: Counter[JobRef] = Counter()
    world: dict[JobRef, int] = {}
    for record in records:
        nodes.update(record.jobs)
        entry = registry.get(record.node)
        for rank in entry.reported_ranks if entry is not None else ():
            ref = JobRef(rank.job, rank.attempt)
            ranks[ref] += rank.alive
            world[ref] = rank.world
    found = [
        JobImpact(ref.job, ref.attempt, nodes[ref], crew.get(ref, nodes[ref]), ranks[ref], world.get(ref, 0))
        for ref in nodes
    ]
    return tuple(sorted(found, key=lambda hit: (-hit.world, -hit.nodes, hit.job, hit.attempt)))


def compute_blast_radius(
    incident: Incident,
    rules: Mapping[str, PolicyRule],
    status: StatusView,
    snapshot: StateSnapshot,
    registry: ReportRegistry,
    crew: Mapping[JobRef, int],
) -> BlastRadius:
    """Compute the impact from the incident's plan, or from its rule if there is no plan yet.

    `crew` is the result of `count_job_nodes` for the snapshot.
    """
    nodes, rule = concerned_nodes(incident), rules.get(incident.rule)
    planned = tuple(tuple(str(run.step) for run in stage) for stage in incident.plan)
    stages = planned or (tuple(tuple(map(str, stage)) for stage in rule.stages) if rule is not None else ())
    isolates = rule is not None and rule.isolates
    records = [snapshot.nodes[name] for name in nodes if name in snapshot.nodes]
    more = sum(not record.held for record in records) if isolates else 0
    return BlastRadius(
        stages,
        nodes,
        isolates,
        affected_jobs_of(records, registry, crew),
        (status.isolated, status.isolated + more, status.isolated_max),
    )

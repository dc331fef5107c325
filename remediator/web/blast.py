"""Whom it hits when an incident's plan goes on: its steps, the nodes, the jobs on them, and how much of the budget is left. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from remediator.decide.policy import Rule
from remediator.engine import Snapshot
from remediator.model.records import Incident, JobRef, NodeRecord
from remediator.model.views import StatusView
from remediator.roster import Roster

NODES_NAMED = 20


class Hit(msgspec.Struct, frozen=True):
    """One job: how many of its nodes, and of its living ranks, are concerned; `world` ranks in all, 0 where nobody tells."""

    job: str
    attempt: int
    nodes_hit: int
    nodes: int
    ranks_hit: int
    world: int


class Blast(msgspec.Struct, frozen=True):
    """`stages` run in turn, the steps of one side by side. `level` counts isolated nodes now, afterwards and at most."""

    stages: tuple[tuple[str, ...], ...]
    nodes: tuple[str, ...]
    isolates: bool
    jobs: tuple[Hit, ...]
    level: tuple[int, int, int]


def concerned(incident: Incident) -> tuple[str, ...]:
    """The nodes that an incident is about."""
    return incident.members if incident.wide else (incident.node,)


def crews(snapshot: Snapshot) -> Counter[JobRef]:
    """On how many nodes each job is."""
    return Counter(ref for record in snapshot.nodes.values() for ref in record.jobs)


def hits(records: Iterable[NodeRecord], roster: Roster, crew: Mapping[JobRef, int]) -> tuple[Hit, ...]:
    """The jobs on these nodes, the largest first. `crew` is what `crews` says."""
    nodes: Counter[JobRef] = Counter()
    ranks: Counter[JobRef] = Counter()
    world: dict[JobRef, int] = {}
    for record in records:
        nodes.update(record.jobs)
        entry = roster.get(record.node)
        for rank in entry.ranks if entry is not None else ():
            ref = JobRef(rank.job, rank.attempt)
            ranks[ref] += rank.alive
            world[ref] = rank.world
    found = [
        Hit(ref.job, ref.attempt, nodes[ref], crew.get(ref, nodes[ref]), ranks[ref], world.get(ref, 0)) for ref in nodes
    ]
    return tuple(sorted(found, key=lambda hit: (-hit.world, -hit.nodes, hit.job, hit.attempt)))


def blast(
    incident: Incident,
    rules: Mapping[str, Rule],
    status: StatusView,
    snapshot: Snapshot,
    roster: Roster,
    crew: Mapping[JobRef, int],
) -> Blast:
    """What is to come, by the plan where there is one, else by the rule. `crew` is what `crews` says of the snapshot."""
    nodes, rule = concerned(incident), rules.get(incident.rule)
    planned = tuple(tuple(str(run.step) for run in stage) for stage in incident.plan)
    stages = planned or (tuple(tuple(map(str, stage)) for stage in rule.stages) if rule is not None else ())
    isolates = rule is not None and rule.isolates
    records = [snapshot.nodes[name] for name in nodes if name in snapshot.nodes]
    more = sum(not record.held for record in records) if isolates else 0
    return Blast(
        stages,
        nodes,
        isolates,
        hits(records, roster, crew),
        (status.isolated, status.isolated + more, status.isolated_max),
    )

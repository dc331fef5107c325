"""Whom it hits when an incident's plan goes on: its steps, the nodes, the jobs on them, and how much of the budget is left. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from remediator.decide.policy import Rule
from remediator.engine import Snapshot
from remediator.model.records import Incident
from remediator.model.views import StatusView
from remediator.model.views_jobs import JobView

NODES_NAMED = 20


class Hit(msgspec.Struct, frozen=True):
    """One job: how many of its nodes are among those concerned."""

    job: str
    attempt: int
    nodes_hit: int
    nodes: int
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


def blast(
    incident: Incident, rules: Mapping[str, Rule], snapshot: Snapshot, jobs: Collection[JobView], status: StatusView
) -> Blast:
    """What is to come, by the plan where there is one, else by the rule."""
    nodes, rule = concerned(incident), rules.get(incident.rule)
    planned = tuple(tuple(str(run.step) for run in stage) for stage in incident.plan)
    stages = planned or (tuple(tuple(map(str, stage)) for stage in rule.stages) if rule is not None else ())
    isolates = rule is not None and rule.isolates
    records = [snapshot.nodes[name] for name in nodes if name in snapshot.nodes]
    here = {ref.job for record in records for ref in record.jobs}
    hits = [
        Hit(job.job, job.attempt, len(set(job.nodes) & set(nodes)), len(job.nodes), job.world)
        for job in jobs
        if job.job in here
    ]
    more = sum(not record.held for record in records) if isolates else 0
    level = (status.isolated, status.isolated + more, status.isolated_max)
    return Blast(stages, nodes, isolates, tuple(hits), level)

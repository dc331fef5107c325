"""Groups open incidents that differ only in their node, so that a list stays readable when a hundred open at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from remediator.model.journal_records import Incident
from remediator.web.severity_order import known_incident_findings
from vocabulary.finding import Finding

ALIKE_MIN = 3  # fewer similar incidents stay separate rows
NAMED = 20  # nodes listed in one row

Key = tuple[object, ...]


class IncidentGroup(msgspec.Struct, frozen=True):
    """One incident, or several similar ones: `kind` is their common finding, `summary` that of the first incident."""

    incidents: tuple[Incident, ...]
    kind: str = ""
    summary: str = ""

    @property
    def first(self) -> Incident:
        """The incident that represents the group."""
        return self.incidents[0]

    @property
    def since(self) -> float:
        """When the oldest was opened (UTC s)."""
        return min(incident.opened_at for incident in self.incidents)


def group_incidents(incidents: Iterable[Incident], findings: Mapping[str, Finding]) -> list[IncidentGroup]:
    """Group the incidents, keeping their order; a group stands at the place of its first incident.

    Incidents are grouped if each is about one node and they share the kind and severity of their worst active finding, the
    injected mark, the rule, its answer, the assignee and the progress of the plan.
    """
    told = [(incident, *_grouping_key(incident, findings)) for incident in incidents]
    alike: dict[Key, list[Incident]] = {}
    for incident, key, _ in told:
        alike.setdefault(key, []).append(incident)
    rows: list[IncidentGroup] = []
    for incident, key, worst in told:
        those = alike[key]
        if worst is None or len(those) < ALIKE_MIN:
            rows.append(IncidentGroup((incident,)))
        elif those[0] is incident:
            rows.append(IncidentGroup(tuple(those), worst.kind, worst.summary))
    return rows


def _grouping_key(incident: Incident, findings: Mapping[str, Finding]) -> tuple[Key, Finding | None]:
    live = (found for found in known_incident_findings(incident, findings) if found.active)
    worst = max(live, key=lambda found: found.severity.rank, default=None)
    if worst is None or incident.wide:
        return (incident.id,), worst
    marks = incident.state, incident.answer, incident.rule, incident.injected, incident.acknowledged_by
    steps = tuple((str(run.step), run.state) for stage in incident.plan for run in stage)
    return (*marks, worst.kind, worst.severity, worst.injected, steps), worst

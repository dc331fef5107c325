"""Open incidents that say the same of different nodes, as one row: a page must be read in seconds also when a hundred came at once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from remediator.model.journal_records import Incident
from remediator.web.severity_order import known_incident_findings
from vocabulary.finding import Finding

ALIKE_MIN = 3  # so many that say the same are said as one
NAMED = 20  # nodes of one row

Key = tuple[object, ...]


class IncidentGroup(msgspec.Struct, frozen=True):
    """An incident, or several: `kind` and `summary` are what they share and what the first of them was found with."""

    incidents: tuple[Incident, ...]
    kind: str = ""
    summary: str = ""

    @property
    def first(self) -> Incident:
        """The one that stands for all."""
        return self.incidents[0]

    @property
    def since(self) -> float:
        """When the oldest was opened (UTC s)."""
        return min(incident.opened_at for incident in self.incidents)


def group_incidents(incidents: Iterable[Incident], findings: Mapping[str, Finding]) -> list[IncidentGroup]:
    """The incidents in their order; those alike stand where the first of them stood.

    Alike are those of single nodes whose gravest live finding is of one kind, severity and origin of test, about which one rule
    gave one answer, and whose plans are as far. What nobody looks after never hides behind what somebody does.
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

"""The severity of incidents by their active findings, marks for injected faults, and the order of lists. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remediator.model.journal_records import BREAKER, Answer, Incident, IncidentState
from vocabulary.finding import Finding, Severity

_FIRST = {IncidentState.WAITING: 0, IncidentState.ACTING: 1, IncidentState.OPEN: 2}
_LAST = 3

DRILL, PARTLY_DRILL = "injected", "partly injected"


def worst_severity(findings: Iterable[Finding]) -> Severity | None:
    """The highest severity of the active findings; None if there are none."""
    return max((f.severity for f in findings if f.active), key=lambda severity: severity.rank, default=None)


def drill_text(findings: Iterable[Finding], *, injected: bool = False) -> str:
    """The mark for injected test faults among these findings; empty without any. `injected`: the whole incident is one."""
    if injected:
        return DRILL
    marks = {finding.injected for finding in findings}
    return {(True,): DRILL, (False, True): PARTLY_DRILL}.get(tuple(sorted(marks)), "")


def known_incident_findings(incident: Incident, findings: Mapping[str, Finding]) -> list[Finding]:
    """The incident's findings that are still known."""
    return [findings[name] for name in incident.findings if name in findings]


def order_by_severity(incidents: Iterable[Incident], findings: Mapping[str, Finding]) -> list[Incident]:
    """Sort incidents: the breaker, then by severity, then those that wait for an operator, then the newest.

    Incidents that are only watched come last: they need no action, or another incident covers them.
    """

    def key(incident: Incident) -> tuple[bool, bool, int, int, float, str]:
        quiet = incident.state is IncidentState.OPEN and incident.answer is Answer.WATCH
        severity = worst_severity(known_incident_findings(incident, findings))
        rank = severity.rank if severity is not None else -1
        urgency = _FIRST.get(incident.state, _LAST)
        return incident.node != BREAKER, quiet, -rank, urgency, -incident.opened_at, incident.id

    return sorted(incidents, key=key)

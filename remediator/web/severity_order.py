"""How grave an incident is by its live findings, whether a drill is in it, and which incident is looked at first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from remediator.model.journal_records import BREAKER, Answer, Incident, IncidentState
from vocabulary.finding import Finding, Severity

_FIRST = {IncidentState.WAITING: 0, IncidentState.ACTING: 1, IncidentState.OPEN: 2}
_LAST = 3

DRILL, PARTLY_DRILL = "injected", "partly injected"


def worst_severity(findings: Iterable[Finding]) -> Severity | None:
    """The severity of the gravest finding that still holds."""
    return max((f.severity for f in findings if f.active), key=lambda severity: severity.rank, default=None)


def drill_text(findings: Iterable[Finding], *, injected: bool = False) -> str:
    """What a page says of test faults among these findings; empty without any. `injected`: the incident is a drill, whole."""
    if injected:
        return DRILL
    marks = {finding.injected for finding in findings}
    return {(True,): DRILL, (False, True): PARTLY_DRILL}.get(tuple(sorted(marks)), "")


def known_incident_findings(incident: Incident, findings: Mapping[str, Finding]) -> list[Finding]:
    """Those that are still known."""
    return [findings[name] for name in incident.findings if name in findings]


def order_by_severity(incidents: Iterable[Incident], findings: Mapping[str, Finding]) -> list[Incident]:
    """The breaker, then by severity; of the same, what waits for a person first, then the newest.

    What is only watched comes last: nothing is to be done about it, or another incident stands for it.
    """

    def key(incident: Incident) -> tuple[bool, bool, int, int, float, str]:
        quiet = incident.state is IncidentState.OPEN and incident.answer is Answer.WATCH
        severity = worst_severity(known_incident_findings(incident, findings))
        rank = severity.rank if severity is not None else -1
        urgency = _FIRST.get(incident.state, _LAST)
        return incident.node != BREAKER, quiet, -rank, urgency, -incident.opened_at, incident.id

    return sorted(incidents, key=key)

"""Findings become incidents: one open incident per node, everything seen there meanwhile joins it.

Findings that need no reaction (info) never open one, but join what is open and give context to what opens soon after.
A finding that a closed incident dealt with does not open another: whoever closed it knew it was there.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.records import Facts, Incident
from remediator.state import ClusterState
from vocabulary.finding import Finding, Severity

CONTEXT_S = 300.0
TITLE_MAX = 200


def absorb(state: ClusterState, finding: Finding, now: float) -> None:
    """Take in one finding as a node reported it: store it, audit what is new, and let it join or open an incident."""
    before = state.findings.get(finding.id)
    if before is not None and before.node != finding.node:
        text = f"{finding.node} speaks of finding {finding.id}, which is {before.node}'s; ignored"
        state.note(now, "finding_refused", text, node=finding.node)
        return
    if before is not None and before.cleared_at is not None and finding.active:
        return  # a late copy of something already cleared
    if before == finding:
        return
    state.put_finding(finding)
    incident = state.incident_of(finding.node)
    _audit(state, before, finding, now, incident)
    if not finding.active and finding.severity is not Severity.INFO:
        state.settled.pop(finding.id, None)
        return
    if incident is not None:
        _join(state, incident, finding)
    elif finding.severity is not Severity.INFO and finding.id not in state.settled:
        _open(state, finding, now)


def clear_unasserted(state: ClusterState, node: str, asserted: set[str], now: float) -> None:
    """Clear what the node no longer holds true: it re-asserts its whole state, so silence about one finding is news."""
    for finding in state.active_on(node):
        if finding.id not in asserted:
            absorb(state, finding.cleared(now, "no longer asserted by the node"), now)


def open_missing(state: ClusterState, now: float) -> None:
    """Whatever is active and was dealt with by nobody has an incident, however it came to have none."""
    for finding in sorted(state.findings.values(), key=lambda f: (f.first_seen, f.id)):
        unanswered = finding.active and finding.severity is not Severity.INFO and finding.id not in state.settled
        if unanswered and state.incident_of(finding.node) is None:
            _open(state, finding, now)


def forget_old(state: ClusterState, now: float) -> None:
    """Drop inactive findings that no open incident needs and that give no context any more."""
    needed = {f for incident in state.incidents.values() for f in incident.findings}
    old = [
        f.id for f in state.findings.values() if not f.active and f.id not in needed and now - f.last_seen > CONTEXT_S
    ]
    for finding_id in old:
        del state.findings[finding_id]
        state.settled.pop(finding_id, None)


def _audit(
    state: ClusterState, before: Finding | None, finding: Finding, now: float, incident: Incident | None
) -> None:
    data: Facts = {
        "finding": finding.id,
        "kind": finding.kind,
        "severity": finding.severity.value,
        "count": finding.count,
    }
    if before is None:
        kind, text = "finding_raised", f"{finding.kind} on {finding.node}, {finding.component}: {finding.summary}"
        data |= {"first_seen": finding.first_seen, **finding.evidence}
    elif before.active and not finding.active:
        kind, text = "finding_cleared", f"{finding.kind} on {finding.node} cleared: {finding.cleared_by}"
    elif before.severity is not finding.severity:
        was = before.severity.value
        kind, text = "finding_changed", f"{finding.kind} on {finding.node} is now {finding.severity.value} (was {was})"
    else:
        return
    state.note(now, kind, text, node=finding.node, incident=incident, injected=finding.injected, data=data)


def _join(state: ClusterState, incident: Incident, finding: Finding) -> None:
    if finding.id not in incident.findings:
        findings = (*incident.findings, finding.id)
        state.put_incident(replace(incident, findings=findings, injected=incident.injected or finding.injected))


def _open(state: ClusterState, finding: Finding, now: float) -> None:
    context = sorted(
        (
            f
            for f in state.findings.values()
            if f.node == finding.node and f.id != finding.id and now - f.last_seen <= CONTEXT_S
        ),
        key=lambda f: (f.first_seen, f.id),
    )
    context = [f for f in context if f.id not in state.settled]
    incident = Incident(
        id=f"inc-{finding.id[:10]}",
        node=finding.node,
        title=f"{finding.kind} on {finding.component}: {finding.summary}"[:TITLE_MAX],
        opened_at=now,
        findings=(*(f.id for f in context), finding.id),
        injected=finding.injected or any(f.injected for f in context),
    )
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {incident.node}: {incident.title}", incident=incident)

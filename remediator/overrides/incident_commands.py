"""Operators' commands on incidents: approve, acknowledge, note, close, reopen. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.plan_progress import close_incident
from remediator.model.journal_records import AuditEvent, Facts, Incident, IncidentState
from remediator.model.pipeline_inputs import IncidentCommand, IncidentCommandKind, IncidentReopened, StepApproved
from remediator.state.cluster_state import ClusterState

_SPOKEN = {
    IncidentCommandKind.ACKNOWLEDGE: ("incident_acknowledged", "acknowledged the incident"),
    IncidentCommandKind.NOTE: ("note", "added a note"),
    IncidentCommandKind.RESOLVE: ("incident_resolved", "resolved the incident"),
}


def apply_incident_command(state: ClusterState, item: StepApproved | IncidentCommand | IncidentReopened) -> set[str]:
    """Apply an operator's command. Returns the nodes it concerns."""
    if isinstance(item, StepApproved):
        return _apply_approval(state, item)
    return _apply_command(state, item) if isinstance(item, IncidentCommand) else _apply_reopening(state, item)


def _apply_approval(state: ClusterState, item: StepApproved) -> set[str]:
    incident = state.incidents.get(item.incident)
    if incident is None or item.what in incident.approved:
        return set()
    approved = replace(incident, approved=(*incident.approved, item.what))
    state.put_incident(approved)
    facts: Facts = {"what": item.what, "address": item.address} if item.address else {"what": item.what}
    _append_incident_audit(state, approved, item, "approved", f"{item.actor} approved {item.what}", facts)
    return {incident.node}


def _apply_command(state: ClusterState, item: IncidentCommand) -> set[str]:
    """Apply one command. A repeated one changes nothing; a note may also be added to a closed incident."""
    incident = state.incidents.get(item.incident)
    if item.word is IncidentCommandKind.NOTE:
        _audit_command(state, item)
        return set()
    if incident is None:
        return set()
    if item.word is IncidentCommandKind.ACKNOWLEDGE:
        if incident.acknowledged_by == item.actor:
            return set()
        _audit_command(state, item)
        state.put_incident(replace(incident, acknowledged_by=item.actor, acknowledged_at=item.at))
        return set()
    if incident.state is IncidentState.ACTING or incident.node in state.held:
        return set()  # the plan has begun, or we isolated the node; the request's answer says so
    _audit_command(state, item)
    outcome = f"resolved by {item.actor}" + (f": {item.text}" if item.text else "")
    close_incident(state, replace(incident, kept_open=False), outcome, item.at, f"{item.actor} resolved it")
    return {incident.node}


def _apply_reopening(state: ClusterState, item: IncidentReopened) -> set[str]:
    """Reopen a closed incident, unless its node has another open one by now. It gets a new decision."""
    incident = item.incident
    if incident.id in state.incidents or state.incident_of(incident.node) is not None:
        return set()
    if incident.node not in state.nodes:
        return set()
    for finding in item.findings:
        if finding.id not in state.findings:
            state.put_finding(finding)
    known = tuple(f for f in incident.findings if f in state.findings)
    for finding_id in known:
        state.settled.pop(finding_id, None)
    again = replace(
        incident,
        state=IncidentState.OPEN,
        findings=known,
        rule="",
        answer=None,
        answered=0,
        plan=(),
        closed_at=None,
        outcome="",
        ended_by="",
        acknowledged_by="",
        acknowledged_at=None,
        kept_open=True,
    )
    state.put_incident(again)
    text = f"{item.actor} reopened {incident.id}" + (f": {item.text}" if item.text else "")
    facts: Facts = {"address": item.address} if item.address else {}
    _append_incident_audit(state, again, item, "incident_reopened", text, facts)
    return {incident.node}


def _audit_command(state: ClusterState, item: IncidentCommand) -> None:
    kind, verb = _SPOKEN[item.word]
    facts: Facts = {name: value for name, value in (("address", item.address), ("key", item.key)) if value}
    if item.word is IncidentCommandKind.NOTE:
        facts["note"] = item.text
    text = f"{item.actor} {verb}" + (f": {item.text}" if item.text else "")
    about = state.incidents.get(item.incident)
    if about is not None:
        _append_incident_audit(state, about, item, kind, text, facts)
        return
    closed = AuditEvent(
        at=item.at, kind=kind, text=text, actor=item.actor, node=item.node, incident=item.incident, data=facts
    )
    state.changes.audit.append(closed)


def _append_incident_audit(
    state: ClusterState,
    about: Incident,
    item: StepApproved | IncidentCommand | IncidentReopened,
    kind: str,
    text: str,
    data: Facts,
) -> None:
    """Append an audit event with the operator as its actor."""
    state.changes.audit.append(
        AuditEvent(
            at=item.at,
            kind=kind,
            text=text,
            actor=item.actor,
            node=about.node,
            incident=about.id,
            injected=about.injected,
            data=data,
        )
    )

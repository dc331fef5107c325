"""Ensures that every node held by the controller has an incident, so that operators are notified of it. Pure."""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from remediator.decisions.plan_progress import hand_incident_over
from remediator.model.journal_records import BUILT_IN, Answer, Decision, Incident, IncidentState
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Severity

RULE = "held"
NO_REASON = "the controller still holds the node, but no finding is active; resume the node in the scheduler"
NOBODYS = "the controller holds the node without an incident; check the node, then resume it in the scheduler"


def redecide_node(state: ClusterState, node: str, now: float) -> None:
    """Decide again on the active findings of a held node; without any, an operator must lift our hold."""
    incident = state.incident_of(node)
    if incident is None:
        _open_hold_incident(state, node, now)
    elif is_still_asserted(state, incident):
        again = replace(incident, state=IncidentState.OPEN, rule="", answer=None, answered=0, plan=(), outcome="")
        state.put_incident(again)
    else:
        hand_incident_over(state, incident, NO_REASON, now)


def is_still_asserted(state: ClusterState, incident: Incident) -> bool:
    """Return whether a node still asserts a finding of it above info."""
    return any(f.active and f.severity is not Severity.INFO for f in state.findings_of(incident))


def open_missing_hold_incidents(state: ClusterState, now: float) -> None:
    """Open incidents for held nodes without one; otherwise no operator would know of them."""
    for node in sorted(state.held):
        if state.incident_of(node) is None:
            _open_hold_incident(state, node, now)


def _open_hold_incident(state: ClusterState, node: str, now: float) -> None:
    """Open an incident that rests on our hold alone. No playbook answers it, but a finding that joins it is decided."""
    cause = hashlib.sha256(f"{node}\x1f{RULE}\x1f{now!r}".encode()).hexdigest()
    incident = Incident(
        id=f"inc-{cause[:12]}",
        node=node,
        title=f"{node} is held by the controller",
        opened_at=now,
        rule=RULE,
        decisions=1,
        policy=BUILT_IN,
    )
    state.put_incident(incident)
    state.note(now, "incident_opened", f"{incident.id} on {node}: {incident.title}", incident=incident)
    decision = Decision(
        id=incident.decision,
        incident=incident.id,
        node=node,
        at=now,
        answer=Answer.WATCH,
        rule=RULE,
        reason=NOBODYS,
        policy=BUILT_IN,
        findings=(),
    )
    state.put_decision(decision)
    hand_incident_over(state, incident, NOBODYS, now)

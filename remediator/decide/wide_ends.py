"""How incidents about more than one node end: a person says so, or nothing is left of them."""

from __future__ import annotations

from remediator.decide.common_cause import RULE
from remediator.decide.plan import close
from remediator.model.inputs import BreakerReset
from remediator.model.records import AuditEvent
from remediator.state import BREAKER, ClusterState


def reset_breaker(state: ClusterState, item: BreakerReset) -> None:
    """A person closes it. Resetting a closed one changes nothing."""
    incident = state.incident_of(BREAKER)
    if incident is None:
        return
    why = f"reset by {item.actor}" + (f": {item.text}" if item.text else "")
    event = AuditEvent(
        at=item.at,
        kind="breaker_reset",
        text=why,
        actor=item.actor,
        node=BREAKER,
        incident=incident.id,
        data={"address": item.address} if item.address else {},
    )
    state.changes.audit.append(event)
    close(state, incident, why, item.at)


def review(state: ClusterState, now: float) -> None:
    """Close what is over: no member of a common cause has an open incident any more."""
    for wide in state.wide():
        if wide.rule == RULE and all(state.incident_of(node) is None for node in wide.members):
            close(state, wide, "none of its nodes has an open incident any more", now)

"""How group incidents end: an operator closes them, nothing is left of them, or another incident absorbs them."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.plan_progress import close_incident
from remediator.model.journal_records import BREAKER, CAUSE, SLOW_CAUSE, AuditEvent, Incident
from remediator.model.pipeline_inputs import BreakerReset
from remediator.state.cluster_state import ClusterState

PARTS_MAX = 200  # that an incident remembers
QUIET_S = 3600.0  # a slow cause may continue although all affected nodes are repaired


def close_as_part_of(state: ClusterState, above: Incident, part: Incident, now: float) -> Incident:
    """Close an incident as part of another one. Returns the updated other one."""
    grown = replace(above, parts=(*above.parts, part.id, *part.parts)[-PARTS_MAX:])
    state.put_incident(grown)
    close_incident(state, part, f"now part of {above.id}, {above.node}", now)
    return grown


def close_breaker_incident(state: ClusterState, item: BreakerReset) -> None:
    """Close the breaker's incident for an operator. Resetting a closed one changes nothing."""
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
    close_incident(state, incident, why, item.at)


def review_group_incidents(state: ClusterState, now: float) -> None:
    """Close ended ones: no member of a common cause has an open incident, and a slow cause has been quiet."""
    for wide in state.wide():
        if wide.rule not in (CAUSE, SLOW_CAUSE) or any(state.incident_of(node) is not None for node in wide.members):
            continue
        if not (wide.rule == SLOW_CAUSE and state.suspects.at(wide.node, now - QUIET_S, drills=True)):
            close_incident(state, wide, "none of its nodes has an open incident", now)

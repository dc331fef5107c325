"""How incidents about more than one node end: a person says so, nothing is left of them, or another one takes them in."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.plan_progress import close_incident
from remediator.model.journal_records import BREAKER, CAUSE, SLOW_CAUSE, AuditEvent, Incident
from remediator.model.pipeline_inputs import BreakerReset
from remediator.state.cluster_state import ClusterState

PARTS_MAX = 200  # that an incident remembers
QUIET_S = 3600.0  # a slow cause may still go on although all that it met so far were repaired


def close_as_part_of(state: ClusterState, above: Incident, part: Incident, now: float) -> Incident:
    """End an incident that is part of another one, as that from now on. Returns the other one as it is then."""
    grown = replace(above, parts=(*above.parts, part.id, *part.parts)[-PARTS_MAX:])
    state.put_incident(grown)
    close_incident(state, part, f"part of {above.id}, {above.node}, now", now)
    return grown


def close_breaker_incident(state: ClusterState, item: BreakerReset) -> None:
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
    close_incident(state, incident, why, item.at)


def review_group_incidents(state: ClusterState, now: float) -> None:
    """Close what is over: no member of a shared cause has an open incident any more, and none comes slowly after it."""
    for wide in state.wide():
        if wide.rule not in (CAUSE, SLOW_CAUSE) or any(state.incident_of(node) is not None for node in wide.members):
            continue
        if not (wide.rule == SLOW_CAUSE and state.suspects.at(wide.node, now - QUIET_S, drills=True)):
            close_incident(state, wide, "none of its nodes has an open incident any more", now)

"""How far the system is with an incident, in one line. Pure."""

from __future__ import annotations

from remediator.model.plan import StepState
from remediator.model.views import IncidentView


def doing(incident: IncidentView) -> str:
    """What the system does about it now, or what it waits for."""
    if incident.awaits:
        return "waits for approval: " + "; ".join(awaited.text for awaited in incident.awaits)
    steps = incident.steps
    place, now = next(
        ((n, step) for n, step in enumerate(steps, 1) if step.state != StepState.SUCCEEDED.value), (0, None)
    )
    if now is None:
        return incident.outcome or (f"all {len(steps)} steps are done" if steps else "nothing is planned")
    words = f"step {place} of {len(steps)}, {now.state}: {now.text}"
    return f"{words} ({now.detail})" if now.detail else words


def to_come(incident: IncidentView) -> tuple[str, ...]:
    """The steps that have not begun."""
    return tuple(step.text for step in incident.steps if step.state == StepState.PENDING.value)

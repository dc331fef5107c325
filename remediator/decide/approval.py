"""What waits for a person's word: the one place that knows it, for views, for the API and for scenarios."""

from __future__ import annotations

from remediator.model.plan import Mode, StepState, step_key
from remediator.model.records import Answer, Incident, IncidentState
from remediator.model.views import Awaited


def awaiting(incident: Incident) -> tuple[Awaited, ...]:
    """What an open incident waits for a person to approve: its decision, or steps of its plan."""
    if incident.state is IncidentState.CLOSED:
        return ()
    if incident.answer is Answer.APPROVE and incident.decision not in incident.approved:
        return (Awaited(incident.decision, f"the plan of {incident.rule}"),)
    waiting = [
        Awaited(step_key(incident.decision, stage, index, run.key), str(run.step))
        for stage, runs in enumerate(incident.plan)
        for index, run in enumerate(runs)
        if run.state is StepState.PENDING and run.step.mode is Mode.APPROVE and run.detail
    ]
    return tuple(each for each in waiting if each.id not in incident.approved)

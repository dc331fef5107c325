"""What waits for a person's word: the one place that knows it, for views, for the API and for scenarios."""

from __future__ import annotations

from collections.abc import Mapping

from remediator.decisions.policy import PolicyRule
from remediator.model.journal_records import Answer, Incident, IncidentState
from remediator.model.plan_steps import Mode, StepState, step_key
from remediator.model.views import Awaited

_NOT_DONE = frozenset({Answer.HOLD, Answer.APPROVE, Answer.RECOMMEND, Answer.OBSERVE})


def list_awaited_approvals(incident: Incident) -> tuple[Awaited, ...]:
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


def list_proposed_stages(incident: Incident, rules: Mapping[str, PolicyRule]) -> tuple[tuple[str, ...], ...]:
    """The stages of the plan that a guard, a person or the mode keeps from being begun; none where there is no such plan."""
    rule = rules.get(incident.rule)
    if rule is None or incident.state is IncidentState.CLOSED or incident.answer not in _NOT_DONE:
        return ()
    return tuple(tuple(map(str, stage)) for stage in rule.stages)

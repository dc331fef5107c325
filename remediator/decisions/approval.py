"""What awaits an operator's approval, for views, the API and scenarios."""

from __future__ import annotations

from collections.abc import Mapping

from remediator.decisions.policy import PolicyRule
from remediator.model.journal_records import Answer, Incident, IncidentState
from remediator.model.plan_steps import Mode, StepState, step_key
from remediator.model.views import PendingApproval

_NOT_DONE = frozenset({Answer.BLOCKED, Answer.APPROVE, Answer.RECOMMEND, Answer.OBSERVE})


def list_awaited_approvals(incident: Incident) -> tuple[PendingApproval, ...]:
    """Return what awaits approval in an open incident: its decision, or steps of its plan."""
    if incident.state is IncidentState.CLOSED:
        return ()
    if incident.answer is Answer.APPROVE and incident.decision not in incident.approved:
        return (PendingApproval(incident.decision, f"the plan of {incident.rule}"),)
    waiting = [
        PendingApproval(step_key(incident.decision, stage, index, run.key), str(run.step))
        for stage, runs in enumerate(incident.plan)
        for index, run in enumerate(runs)
        if run.state is StepState.PENDING and run.step.mode is Mode.APPROVE and run.detail
    ]
    return tuple(each for each in waiting if each.id not in incident.approved)


def list_proposed_stages(incident: Incident, rules: Mapping[str, PolicyRule]) -> tuple[tuple[str, ...], ...]:
    """Return the stages that a guard, a missing approval or the mode blocks; empty without such a plan."""
    rule = rules.get(incident.rule)
    if rule is None or incident.state is IncidentState.CLOSED or incident.answer not in _NOT_DONE:
        return ()
    return tuple(tuple(map(str, stage)) for stage in rule.stages)

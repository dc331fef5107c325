"""Carry an incident's plan forward as far as the present allows. Safe to call at any time, any number of times."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.steps import HANDS_OFF_EXEMPT, STEPS, Context, failed
from remediator.model.records import (
    ActionState,
    Incident,
    IncidentState,
    NodeState,
    StepRun,
    StepState,
)
from remediator.state import ClusterState
from vocabulary.finding import Severity

_OVER = {StepState.SUCCEEDED, StepState.FAILED}


def advance(state: ClusterState, incident_id: str, now: float) -> None:
    """Run every step that can run. The stages of a plan follow each other; the steps of a stage run side by side."""
    while (incident := state.incidents.get(incident_id)) is not None and incident.state is IncidentState.ACTING:
        stage = next(
            (i for i, runs in enumerate(incident.plan) if any(r.state is not StepState.SUCCEEDED for r in runs)), None
        )
        if stage is None:
            _finish(state, incident, now)
            return
        if _operator_stops(state, incident, stage, now):
            return
        before = incident.plan
        for index in range(len(incident.plan[stage])):
            _advance_step(state, incident_id, stage, index, now)
        after = state.incidents[incident_id]
        stuck = next((r for r in after.plan[stage] if r.state is StepState.FAILED), None)
        if stuck is not None and all(r.state in _OVER for r in after.plan[stage]):
            hand_over(state, after, f"{stuck.step} failed: {stuck.detail}", now)
            return
        if after.plan == before:
            return


def _finish(state: ClusterState, incident: Incident, now: float) -> None:
    """The plan is done. A grave fact that joined on the last metres was not what the node was tested for."""
    returned = not state.nodes[incident.node].held
    close(state, incident, "returned to service" if returned else "done", now)
    for finding in state.findings_of(incident):
        if returned and finding.active and finding.severity.rank >= Severity.ERROR.rank:
            state.settled.pop(finding.id, None)


def close(state: ClusterState, incident: Incident, outcome: str, now: float) -> None:
    """End an incident; whatever it had planned and not done is cancelled."""
    for action in [a for a in state.actions.values() if a.incident == incident.id and not a.state.final]:
        state.put_action(
            replace(action, state=ActionState.CANCELLED, finished_at=now, detail=f"incident closed: {outcome}")
        )
    state.put_incident(replace(incident, state=IncidentState.CLOSED, closed_at=now, outcome=outcome))
    state.note(now, "incident_closed", f"{incident.id} on {incident.node}: {outcome}", incident=incident)


def _advance_step(state: ClusterState, incident_id: str, stage: int, index: int, now: float) -> None:
    incident = state.incidents[incident_id]
    run = incident.plan[stage][index]
    if run.state in _OVER:
        return
    if run.state is StepState.PENDING:
        run = replace(run, state=StepState.RUNNING, deadline=now + run.step.timeout_s)
    run = STEPS[run.step.verb](Context(state, incident, stage, index, now), run)
    if run.state is StepState.RUNNING and run.deadline is not None and now >= run.deadline:
        _expire_actions(state, run, now)
        run = failed(run, f"not done within {run.step.timeout_s:g} s" + (f" ({run.detail})" if run.detail else ""))
    if run.state is StepState.FAILED and run.step.on_failure is not None:
        state.note(
            now, "step_failed", f"{run.step} failed ({run.detail}); instead: {run.step.on_failure}", incident=incident
        )
        run = StepRun(run.step.on_failure)
    latest = state.incidents[incident_id]
    if latest.plan[stage][index] != run:
        runs = list(latest.plan[stage])
        runs[index] = run
        state.put_incident(replace(latest, plan=(*latest.plan[:stage], tuple(runs), *latest.plan[stage + 1 :])))


def _expire_actions(state: ClusterState, run: StepRun, now: float) -> None:
    for action in [state.actions[a] for a in run.actions]:
        if not action.state.final:
            state.put_action(replace(action, state=ActionState.EXPIRED, finished_at=now, detail="deadline passed"))


def _operator_stops(state: ClusterState, incident: Incident, stage: int, now: float) -> bool:
    """Beyond telling the trainer, hands off a node that an operator holds."""
    if state.nodes[incident.node].state is not NodeState.OPERATOR_HELD:
        return False
    if all(run.step.verb in HANDS_OFF_EXEMPT for run in incident.plan[stage]):
        return False
    hand_over(state, incident, "an operator holds the node; the rest is theirs", now)
    return True


def hand_over(state: ClusterState, incident: Incident, why: str, now: float) -> None:
    """Stop here: it is a person's turn."""
    state.put_incident(replace(incident, state=IncidentState.WAITING, outcome=why))
    state.note(now, "needs_human", f"{incident.id} on {incident.node}: {why}", incident=incident)

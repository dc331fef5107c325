"""Carry an incident's plan forward as far as the present allows. Safe to call at any time, any number of times."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.begin import begin
from remediator.decide.context import Context, failed
from remediator.decide.lifecycle import move
from remediator.decide.steps import HANDS_OFF_EXEMPT, STEPS
from remediator.model.plan import PASSED_OVER, StepRun, StepState, Verb
from remediator.model.records import ActionState, Incident, IncidentState
from remediator.model.rules import NodeState
from remediator.state import ClusterState
from vocabulary.finding import Severity

_OVER = {StepState.SUCCEEDED, StepState.FAILED}


def advance(state: ClusterState, incident_id: str, now: float) -> None:
    """Run every step that can run. The stages of a plan follow each other; the steps of a stage run side by side."""
    while (incident := state.incidents.get(incident_id)) is not None and incident.state is IncidentState.ACTING:
        stage = next((i for i, runs in enumerate(incident.plan) if not all(map(_passed, runs))), None)
        if stage is None or _given_up(incident):
            _finish(state, incident, now)
            return
        if _operator_stops(state, incident, stage, now):
            return
        before = incident.plan
        for index in range(len(incident.plan[stage])):
            _advance_step(state, incident_id, stage, index, now)
        after = state.incidents[incident_id]
        stuck = next((r for r in after.plan[stage] if r.state is StepState.FAILED and not _passed(r)), None)
        if stuck is not None and all(r.state in _OVER for r in after.plan[stage]):
            hand_over(state, after, f"{stuck.step} failed: {stuck.detail}", now)
            return
        if after.plan == before:
            return


def _passed(run: StepRun) -> bool:
    """Done, or no reason to stop: that nobody could be told must not keep a bad node in service."""
    return run.state is StepState.SUCCEEDED or (run.state is StepState.FAILED and run.step.verb in PASSED_OVER)


def _given_up(incident: Incident) -> bool:
    """A step came to `replace`, wherever in the plan: whatever was to follow would bring a bad node back."""
    return any(
        run.step.verb is Verb.REPLACE and run.state is StepState.SUCCEEDED for stage in incident.plan for run in stage
    )


def _finish(state: ClusterState, incident: Incident, now: float) -> None:
    """The plan is done. A grave fact that joined on the last metres was not what the node was tested for."""
    if state.nodes[incident.node].state is NodeState.REPLACING:
        hand_over(state, incident, "waits for replacement", now)
        return
    returned = not state.nodes[incident.node].held
    close(state, incident, "returned to service" if returned else "done", now)
    for finding in state.findings_of(incident):
        if returned and finding.active and finding.severity.rank >= Severity.ERROR.rank:
            state.settled.pop(finding.id, None)


def close(state: ClusterState, incident: Incident, outcome: str, now: float) -> None:
    """End an incident; whatever it had planned and not done is cancelled."""
    for action in [a for a in state.actions_of(incident) if not a.state.final]:
        state.put_action(
            replace(action, state=ActionState.CANCELLED, finished_at=now, detail=f"incident closed: {outcome}")
        )
    state.put_incident(replace(incident, state=IncidentState.CLOSED, closed_at=now, outcome=outcome))
    node = state.nodes[incident.node]
    if node.state is NodeState.SUSPECT and not node.held:
        state.put_node(move(node, NodeState.HEALTHY, now, f"{incident.id} closed: {outcome}"))
    state.note(now, "incident_closed", f"{incident.id} on {incident.node}: {outcome}", incident=incident)


def _advance_step(state: ClusterState, incident_id: str, stage: int, index: int, now: float) -> None:
    incident = state.incidents[incident_id]
    run = incident.plan[stage][index]
    if run.state in _OVER:
        return
    context = Context(state, incident, stage, index, now)
    if run.state is StepState.PENDING:
        run = begin(context, run)
    if run.state is StepState.RUNNING:
        run = STEPS[run.step.verb](context, run)
        if run.state is StepState.RUNNING and run.deadline is not None and now >= run.deadline:
            _expire_actions(state, run, now)
            run = failed(run, f"not done within {run.step.timeout_s:g} s" + (f" ({run.detail})" if run.detail else ""))
    if run.state in _OVER:
        run = _next_in_place(context, run)
    latest = state.incidents[incident_id]
    if latest.plan[stage][index] != run:
        runs = list(latest.plan[stage])
        runs[index] = run
        state.put_incident(replace(latest, plan=(*latest.plan[:stage], tuple(runs), *latest.plan[stage + 1 :])))


def _next_in_place(context: Context, run: StepRun) -> StepRun:
    """A failed step is tried again, then replaced; a step that succeeded is followed by what was to come in its place."""
    if run.state is StepState.SUCCEEDED:
        return StepRun(run.then[0], then=run.then[1:], key=f"{run.key}.t") if run.then else run
    context.remember(f"failed/{run.step.verb.value}")
    retry = run.step.retry
    if retry is not None and run.attempt < retry.times:
        text = f"{run.step} failed ({run.detail}); attempt {run.attempt + 2} in {retry.after_s:g} s"
        context.note("step_failed", text)
        return StepRun(
            run.step,
            not_before=context.now + retry.after_s,
            then=run.then,
            key=f"{run.key}.r",
            attempt=run.attempt + 1,
        )
    branch = run.step.on_failure
    if not branch:
        return run
    context.note("step_failed", f"{run.step} failed ({run.detail}); instead: {', '.join(str(s) for s in branch)}")
    return StepRun(branch[0], then=(*branch[1:], *run.then), key=f"{run.key}.f")


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

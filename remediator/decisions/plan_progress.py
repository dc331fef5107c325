"""Advances an incident's plan as far as the current state allows. Idempotent, and safe to call at any time."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.decisions.mode_stop import GOES_ON, LEFT_TO_PEOPLE, find_stop_order, is_action_withheld
from remediator.decisions.node_lifecycle import transition_node
from remediator.decisions.operator_takeover import end_action, reassert_hold
from remediator.decisions.rule_guards import evaluate_rule_guards
from remediator.decisions.step_context import StepContext, mark_step_failed, mark_step_succeeded
from remediator.decisions.step_verbs import ALLOWED_UNDER_OPERATOR_HOLD, STEPS
from remediator.model.journal_records import FOR_REPLACEMENT, Action, ActionState, Incident, IncidentState
from remediator.model.plan_steps import NON_DISRUPTIVE, OPTIONAL_STEPS, Mode, StepRun, StepState, Verb
from remediator.model.rule_conditions import OPERATOR_OWNED_STATES, NodeState
from remediator.state.cluster_state import QUIET_S, ClusterState
from vocabulary.finding import Severity
from vocabulary.text.duration_format import format_period

ALERT_S = 86400.0  # how long the controller tries to notify operators that it is their turn
ENDED = "the plan has ended, but the findings are still active"
_OVER = {StepState.SUCCEEDED, StepState.FAILED}


def advance_plan(state: ClusterState, incident_id: str, budget: IsolationBudget, now: float) -> None:
    """Run every step that can run. Stages run in sequence, the steps of a stage side by side."""
    _run_plan(state, incident_id, budget, now)
    incident = state.incidents.get(incident_id)
    if incident is not None:
        reassert_hold(state, incident, now)


def _run_plan(state: ClusterState, incident_id: str, budget: IsolationBudget, now: float) -> None:
    while (incident := state.incidents.get(incident_id)) is not None and incident.state is IncidentState.ACTING:
        stage = open_stage(incident)
        if stage is None or state.nodes[incident.node].state is NodeState.REPLACING:
            _finish_plan(state, incident, now)
            return
        if _operator_blocks_stage(state, incident, stage, now):
            return
        before = incident.plan
        for index in range(len(incident.plan[stage])):
            _advance_step(StepContext(state, incident, stage, index, now, budget))
        after = state.incidents[incident_id]
        stuck = next((r for r in after.plan[stage] if r.state is StepState.FAILED and not _step_passed(r)), None)
        if stuck is not None and all(r.state in _OVER for r in after.plan[stage]):
            hand_incident_over(state, after, f"{stuck.step} failed: {stuck.detail}", now)
            return
        if after.plan == before:
            return


def open_stage(incident: Incident) -> int | None:
    """Return the stage that the plan is in; None: all have passed."""
    return next((i for i, runs in enumerate(incident.plan) if not all(map(_step_passed, runs))), None)


def _step_passed(run: StepRun) -> bool:
    """Return whether the stage may continue: a failed notification must not keep a bad node in service."""
    return run.state is StepState.SUCCEEDED or (run.state is StepState.FAILED and run.step.verb in OPTIONAL_STEPS)


def _finish_plan(state: ClusterState, incident: Incident, now: float) -> None:
    """End the plan. A finding that joined after it was made, and still holds, was not part of it."""
    node = state.nodes[incident.node]
    if node.state is NodeState.REPLACING:
        hand_incident_over(state, incident, FOR_REPLACEMENT, now)
        return
    if node.held:
        hand_incident_over(state, incident, "the plan has ended and the node is still out of service", now)
        return
    returned = node.state is NodeState.PROBATION
    if not returned and _fault_persists(state, incident, now):
        state.put_incident(replace(incident, state=IncidentState.OPEN, outcome=ENDED))
        state.note(now, "plan_ended", f"{incident.id} on {incident.node}: {ENDED}", incident=incident)
        return
    close_incident(state, incident, "returned to service" if returned else "done", now)
    for finding_id in incident.findings[incident.answered :]:
        if finding_id in state.findings and state.findings[finding_id].active:
            state.settled.pop(finding_id, None)


def _fault_persists(state: ClusterState, incident: Incident, now: float) -> bool:
    """Return whether the fault outlasts the plan: a notification or a hook fixes nothing.

    A plan with a watch step has judged info findings itself. A finding that joined later, without a reaction, gets an
    incident of its own.
    """
    verbs = {run.step.verb for stage in incident.plan for run in stage}
    findings = state.findings_of(incident)
    if any(f.active and f.severity is not Severity.INFO for f in findings):
        unanswered = (state.findings.get(each) for each in incident.findings[incident.answered :])
        return verbs <= NON_DISRUPTIVE or not any(f is not None and f.active for f in unanswered)
    seen_at = max((f.last_seen for f in findings), default=0.0)
    return verbs <= NON_DISRUPTIVE - {Verb.WATCH} and now - seen_at < QUIET_S


def close_incident(state: ClusterState, incident: Incident, outcome: str, now: float, ended_by: str = "") -> None:
    """Close an incident, with an operator's reason if there is one; planned actions are cancelled."""
    for action in [a for a in state.actions_of(incident) if not a.state.final]:
        end_action(state, action, ActionState.CANCELLED, now, f"incident closed: {outcome}")
    closed = replace(incident, state=IncidentState.CLOSED, closed_at=now, outcome=outcome, ended_by=ended_by)
    state.put_incident(closed)
    node = state.nodes.get(incident.node)
    if node is not None and node.state is NodeState.SUSPECT and not node.held:
        to = NodeState.PROBATION if node.on_trial or state.critical_findings_on(node.node) else NodeState.HEALTHY
        state.put_node(transition_node(node, to, now, f"{incident.id} closed: {outcome}"))
    elif node is not None and node.state is NodeState.PROBATION and node.since < incident.opened_at:
        state.put_node(replace(node, since=now, cause=f"on probation again after {incident.id}: {outcome}"))
    state.note(now, "incident_closed", f"{incident.id} on {incident.node}: {outcome}", incident=incident)


def _advance_step(given: StepContext) -> None:
    state, now, stage, index = given.state, given.now, given.stage, given.index
    context = msgspec.structs.replace(given, incident=state.incidents[given.incident.id])
    run = context.incident.plan[stage][index]
    if run.state in _OVER:
        return
    if run.state is StepState.PENDING:
        run = begin_step(context, run)
    if run.state is StepState.RUNNING:
        run = STEPS[run.step.verb](context, run)
        if run.state is StepState.RUNNING and run.deadline is not None and now >= run.deadline:
            _expire_actions(state, run, now)
            run = mark_step_failed(
                run,
                f"not finished within {format_period(run.step.timeout_s)}" + (f" ({run.detail})" if run.detail else ""),
            )
    if run.state in _OVER:
        run = _next_step_run(context, run)
    latest = state.incidents[context.incident.id]
    if latest.plan[stage][index] != run:
        runs = list(latest.plan[stage])
        runs[index] = run
        state.put_incident(replace(latest, plan=(*latest.plan[:stage], tuple(runs), *latest.plan[stage + 1 :])))


def _next_step_run(context: StepContext, run: StepRun) -> StepRun:
    """Retry a failed step, then replace it; a successful one is followed by what replaces its place in the stage."""
    if run.state is StepState.SUCCEEDED:
        return StepRun(run.then[0], then=run.then[1:], key=f"{run.key}.t") if run.then else run
    context.remember(f"failed/{run.step.verb.value}")
    retry = run.step.retry
    if retry is not None and run.attempt < retry.times:
        text = f"{run.step} failed ({run.detail}); attempt {run.attempt + 2} in {format_period(retry.after_s)}"
        context.note("step_failed", text)
        return StepRun(
            run.step, not_before=context.now + retry.after_s, then=run.then, key=f"{run.key}.r", attempt=run.attempt + 1
        )
    branch = run.step.on_failure
    if not branch:
        return run
    context.note("step_failed", f"{run.step} failed ({run.detail}); instead: {', '.join(str(s) for s in branch)}")
    return StepRun(branch[0], then=(*branch[1:], *run.then), key=f"{run.key}.f")


def _expire_actions(state: ClusterState, run: StepRun, now: float) -> None:
    for action in [state.actions[a] for a in run.actions]:
        if not action.state.final:
            kept = is_action_withheld(
                state.operator_overrides, action
            )  # not attempted, so the breaker does not count it as a failure
            how, why = (ActionState.CANCELLED, ": withheld") if kept else (ActionState.EXPIRED, "")
            end_action(state, action, how, now, f"deadline passed{why}")


def _operator_blocks_stage(state: ClusterState, incident: Incident, stage: int, now: float) -> bool:
    """Return whether an operator hold or retirement blocks the stage; trainers are still notified."""
    node = state.nodes[incident.node]
    if node.state not in OPERATOR_OWNED_STATES:
        return False
    if all(run.step.verb in ALLOWED_UNDER_OPERATOR_HOLD for run in incident.plan[stage]):
        return False
    whose = "an operator holds the node" if node.state is NodeState.OPERATOR_HELD else "the node is retired"
    hand_incident_over(state, incident, f"{whose}; automation stops here", now)
    return True


def hand_incident_over(state: ClusterState, incident: Incident, why: str, now: float) -> None:
    """Stop the plan and hand the incident to operators; they are notified once per reason."""
    state.put_incident(replace(incident, state=IncidentState.WAITING, outcome=why))
    state.note(now, "needs_human", f"{incident.id} on {incident.node}: {why}", incident=incident)
    if not incident.decision:
        return
    alert = Action(
        id=f"{incident.decision}.waits.{hashlib.sha256(why.encode()).hexdigest()[:8]}.{Verb.ALERT.value}",
        incident=incident.id,
        decision=incident.decision,
        node=incident.node,
        verb=Verb.ALERT.value,
        planned_at=now,
        deadline=now + ALERT_S,
        reason=f"{incident.id} {incident.rule}",
        data={"how": f"needs a person: {why}"},
    )
    if alert.id not in state.actions:
        state.put_action(alert)


def begin_step(context: StepContext, run: StepRun) -> StepRun:
    """Return the step as running, as pending with what it waits for, or as ended already.

    Its pause, mode, approval and guards are checked before anything is done.
    """
    now, step = context.now, run.step
    if now < run.not_before:
        return run
    if step.mode in LEFT_TO_PEOPLE:
        context.note("step_left", f"{step} is left to operators: its mode is {step.mode.value}")
        return mark_step_succeeded(run, f"left to operators (mode {step.mode.value})")
    if step.mode is Mode.APPROVE and context.approval(run) not in context.incident.approved:
        if not run.detail:
            context.note("approval_wanted", f"{step} waits for approval")
        return replace(run, detail=f"waits for approval of {context.approval(run)}")
    if stopped := _mode_stop_reason(context, run):
        return replace(run, detail=stopped)
    finding = context.because()
    refused = (
        [str(g) for g in evaluate_rule_guards(step.guards, finding, context.state, now) if not g.passed]
        if finding
        else []
    )
    if not refused:
        context.remember(f"action/{step.verb.value}")
        return replace(run, state=StepState.RUNNING, deadline=now + step.timeout_s, detail="")
    wait_until = run.deadline if run.deadline is not None else now + step.timeout_s
    waiting = replace(run, deadline=wait_until, detail="; ".join(refused))
    return (
        mark_step_failed(waiting, f"guards refused for {format_period(step.timeout_s)}: {waiting.detail}")
        if now >= wait_until
        else waiting
    )


def _mode_stop_reason(context: StepContext, run: StepRun) -> str:
    """Return why an operator's mode override blocks steps that change something, whatever the plan. Empty: none does."""
    said = find_stop_order(context.state.operator_overrides)
    if said is None or run.step.verb in GOES_ON:
        return ""
    return f"waits: {said.actor} set the mode to {said.mode.value}"

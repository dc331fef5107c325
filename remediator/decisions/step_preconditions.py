"""Preconditions of a step: its pause, mode, approval and guards are checked before anything is done."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.mode_stop import GOES_ON, LEFT_TO_PEOPLE, find_stop_order
from remediator.decisions.rule_guards import evaluate_rule_guards
from remediator.decisions.step_context import StepContext, mark_step_failed, mark_step_succeeded
from remediator.model.plan_steps import Mode, StepRun, StepState
from vocabulary.text.duration_format import format_period


def begin_step(context: StepContext, run: StepRun) -> StepRun:
    """Return the step as running, as pending with what it waits for, or as ended already."""
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
    said = find_stop_order(context.state.standing)
    if said is None or run.step.verb in GOES_ON:
        return ""
    return f"waits: {said.actor} set the mode to {said.mode.value}"

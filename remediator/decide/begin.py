"""May a step begin? Its pause, its mode, a person's word and its guards come before anything is done."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.context import Context, failed, succeeded
from remediator.decide.guards import ask
from remediator.model.plan import Mode, StepRun, StepState

_LEFT_TO_PEOPLE = {Mode.RECOMMEND, Mode.OBSERVE}


def begin(context: Context, run: StepRun) -> StepRun:
    """The step running, or still pending with what it waits for, or over already."""
    now, step = context.now, run.step
    if now < run.not_before:
        return run
    if step.mode in _LEFT_TO_PEOPLE:
        context.note("step_left", f"{step} is left to people: its mode is {step.mode.value}")
        return succeeded(run, f"left to people (mode {step.mode.value})")
    if step.mode is Mode.APPROVE and context.approval(run) not in context.incident.approved:
        if not run.detail:
            context.note("approval_wanted", f"{step} waits for a person's word")
        return replace(run, detail=f"waits for approval of {context.approval(run)}")
    finding = context.because()
    refused = [str(g) for g in ask(step.guards, finding, context.state, now) if not g.passed] if finding else []
    if not refused:
        context.remember(f"action/{step.verb.value}")
        return replace(run, state=StepState.RUNNING, deadline=now + step.timeout_s, detail="")
    wait_until = run.deadline if run.deadline is not None else now + step.timeout_s
    waiting = replace(run, deadline=wait_until, detail="; ".join(refused))
    return (
        failed(waiting, f"guards refused for {step.timeout_s:g} s: {waiting.detail}") if now >= wait_until else waiting
    )

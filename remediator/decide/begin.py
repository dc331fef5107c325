"""May a step begin? Its pause, its mode, a person's word and its guards come before anything is done."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.context import Context, failed, succeeded
from remediator.decide.guards import ask
from remediator.model.plan import ONLY_TELLING, Mode, StepRun, StepState, Verb
from remediator.model.standing import MODE, ModeSaid

_LEFT_TO_PEOPLE = {Mode.RECOMMEND, Mode.OBSERVE}
_GOES_ON = ONLY_TELLING | {Verb.PREFLIGHT, Verb.RETURN_TO_SERVICE}  # giving a node back is never kept from going on


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
    if stopped := _stopped(context, run):
        return replace(run, detail=stopped)
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


def _stopped(context: Context, run: StepRun) -> str:
    """Why no step that changes something begins, plan or no plan: a person's word about the mode. Empty: it may."""
    said = context.state.standing.get(MODE)
    if not isinstance(said, ModeSaid) or said.mode not in _LEFT_TO_PEOPLE or run.step.verb in _GOES_ON:
        return ""
    return f"waits: {said.actor} set the mode to {said.mode.value}"

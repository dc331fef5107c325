"""How far the system is with an incident, in one line. Pure."""

from __future__ import annotations

from remediator.model.journal_records import Answer
from remediator.model.plan_steps import StepState
from remediator.model.views import IncidentView, Lack

_ANSWERS = {
    Answer.ACT: "acts",
    Answer.HOLD: "would act, and a guard holds it back",
    Answer.APPROVE: "will act once a person agrees",
    Answer.RECOMMEND: "recommends to act; the mode leaves it to people",
    Answer.OBSERVE: "would act; the mode has it look on",
    Answer.WATCH: "watches: nothing is to be done",
}


def step_text(step: str) -> str:
    """A step, or its verb alone, as people write it.

    >>> [step_text(step) for step in ("notify_trainer: abort", "watch: until row_remap is over", "cordon")]
    ['notify trainer: abort', 'watch: until row_remap is over', 'cordon']
    """
    verb, colon, rest = step.partition(":")
    return verb.replace("_", " ") + colon + rest


def incident_progress_text(
    incident: IncidentView, answer: Answer | None = None, rule: str = "", guard: str = ""
) -> str:
    """What the system does about it now, or what it waits for.

    `answer` is that of the last decision, by `rule`; `guard` is what holds it back, in words.
    """
    if incident.awaits:
        return "waits for approval: " + "; ".join(step_text(awaited.text) for awaited in incident.awaits)
    steps = incident.steps
    lacks = "".join(f"; {step_text(step.text)}: {step.lacks.value}" for step in steps if step.lacks is Lack.TOLD_NOBODY)
    return _plan_progress_text(incident, answer, rule, guard) + lacks


def _plan_progress_text(incident: IncidentView, answer: Answer | None, rule: str, guard: str) -> str:
    steps = incident.steps
    place, now = next(
        ((n, step) for n, step in enumerate(steps, 1) if step.state != StepState.SUCCEEDED.value), (0, None)
    )
    if now is None:
        if incident.outcome:
            return incident.outcome if incident.outcome != incident.title else "waits until a person has looked"
        if steps:
            return f"all {len(steps)} steps are done"
        words = "nothing is planned" if answer is None else _ANSWERS[answer]
        if answer is Answer.HOLD and guard:
            words = f"would act; held back by {guard}"
        return f"{words} (rule {rule})" if rule else words
    words = f"step {place} of {len(steps)}, {now.state}: {step_text(now.text)}"
    return f"{words} ({now.detail})" if now.detail else words


def steps_to_come(incident: IncidentView) -> tuple[str, ...]:
    """The steps that have not begun."""
    return tuple(step_text(step.text) for step in incident.steps if step.state == StepState.PENDING.value)

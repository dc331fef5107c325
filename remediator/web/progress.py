"""How far the system is with an incident, in one line. Pure."""

from __future__ import annotations

from remediator.model.plan import StepState
from remediator.model.records import Answer
from remediator.model.views import IncidentView, Lack

_ANSWERS = {
    Answer.ACT: "acts",
    Answer.HOLD: "would act, and a guard holds it back",
    Answer.APPROVE: "will act once a person agrees",
    Answer.RECOMMEND: "recommends to act; the mode leaves it to people",
    Answer.OBSERVE: "would act; the mode has it look on",
    Answer.WATCH: "watches: nothing is to be done",
}


def said(step: str) -> str:
    """A step, or its verb alone, as people write it.

    >>> [said(step) for step in ("notify_trainer: abort", "watch: until row_remap is over", "cordon")]
    ['notify trainer: abort', 'watch: until row_remap is over', 'cordon']
    """
    verb, colon, rest = step.partition(":")
    return verb.replace("_", " ") + colon + rest


def doing(incident: IncidentView, answer: Answer | None = None, rule: str = "", guard: str = "") -> str:
    """What the system does about it now, or what it waits for.

    `answer` is that of the last decision, by `rule`; `guard` is what holds it back, in words.
    """
    if incident.awaits:
        return "waits for approval: " + "; ".join(said(awaited.text) for awaited in incident.awaits)
    steps = incident.steps
    lacks = "".join(f"; {said(step.text)}: {step.lacks.value}" for step in steps if step.lacks is Lack.TOLD_NOBODY)
    return _stands(incident, answer, rule, guard) + lacks


def _stands(incident: IncidentView, answer: Answer | None, rule: str, guard: str) -> str:
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
    words = f"step {place} of {len(steps)}, {now.state}: {said(now.text)}"
    return f"{words} ({now.detail})" if now.detail else words


def to_come(incident: IncidentView) -> tuple[str, ...]:
    """The steps that have not begun."""
    return tuple(said(step.text) for step in incident.steps if step.state == StepState.PENDING.value)

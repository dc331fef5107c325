"""How far the system is with an incident, in one line. Pure."""

from __future__ import annotations

from remediator.model.plan import StepState
from remediator.model.records import Answer
from remediator.model.views import IncidentView

_ANSWERS = {
    Answer.ACT: "acts",
    Answer.HOLD: "would act, and a guard holds it back",
    Answer.APPROVE: "will act once a person agrees",
    Answer.RECOMMEND: "recommends to act; the mode leaves it to people",
    Answer.OBSERVE: "would act; the mode has it look on",
    Answer.WATCH: "watches: nothing is to be done",
}


def doing(incident: IncidentView, answer: Answer | None = None, rule: str = "") -> str:
    """What the system does about it now, or what it waits for. `answer` is that of the last decision, by `rule`."""
    if incident.awaits:
        return "waits for approval: " + "; ".join(awaited.text for awaited in incident.awaits)
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
        return f"{words} (rule {rule})" if rule else words
    words = f"step {place} of {len(steps)}, {now.state}: {now.text}"
    return f"{words} ({now.detail})" if now.detail else words


def to_come(incident: IncidentView) -> tuple[str, ...]:
    """The steps that have not begun."""
    return tuple(step.text for step in incident.steps if step.state == StepState.PENDING.value)

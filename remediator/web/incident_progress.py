"""What automation currently does about an incident, in one line. Pure."""

from __future__ import annotations

from remediator.model.journal_records import Answer
from remediator.model.plan_steps import StepState
from remediator.model.views import IncidentView, StepView

_ANSWERS = {
    Answer.ACT: "acting",
    Answer.BLOCKED: "held back by a guard",
    Answer.APPROVE: "awaiting approval",
    Answer.RECOMMEND: "plan recommended; the mode leaves it to operators",
    Answer.OBSERVE: "plan recorded; the mode allows no action",
    Answer.WATCH: "watching; no action needed",
}

_VERBS = {"cordon_by_hand": "manual cordon", "uncordon_by_hand": "manual uncordon"}


def step_text(step: str) -> str:
    """A step, or its verb alone, as people write it.

    >>> [step_text(step) for step in ("notify_trainer: abort", "watch: until row_remap clears", "cordon_by_hand")]
    ['notify trainer: abort', 'watch: until row_remap clears', 'manual cordon']
    """
    verb, colon, rest = step.partition(":")
    return _VERBS.get(verb, verb.replace("_", " ")) + colon + rest


def find_current_step(incident: IncidentView) -> tuple[int, StepView | None]:
    """The number (from 1) and the step of the plan that has not succeeded yet; 0 and None if there is none."""
    return next(
        ((n, step) for n, step in enumerate(incident.steps, 1) if step.state != StepState.SUCCEEDED.value), (0, None)
    )


def incident_progress_text(
    incident: IncidentView, answer: Answer | None = None, rule: str = "", guard: str = ""
) -> str:
    """Describe what automation does about the incident now, or what it waits for.

    `answer` and `rule` are those of the last decision; `guard` is the text of the guard that holds the plan back.
    """
    if incident.awaits:
        return "awaiting approval: " + "; ".join(step_text(awaited.text) for awaited in incident.awaits)
    steps = incident.steps
    place, now = find_current_step(incident)
    if now is None:
        if incident.outcome:
            return incident.outcome if incident.outcome != incident.title else "waiting for an operator"
        if steps:
            return f"all {len(steps)} steps are done"
        text = "nothing planned" if answer is None else _ANSWERS[answer]
        if answer is Answer.BLOCKED and guard:
            text = f"held back by {guard}"
        return f"{text} (rule {rule})" if rule else text
    text = f"step {place} of {len(steps)}, {now.state}: {step_text(now.text)}"
    return f"{text} ({now.detail})" if now.detail else text


def steps_to_come(incident: IncidentView) -> tuple[str, ...]:
    """The steps that have not started."""
    return tuple(step_text(step.text) for step in incident.steps if step.state == StepState.PENDING.value)

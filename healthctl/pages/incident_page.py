"""An incident, its decisions and its actions, as people read them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.pages.node_page import FINDINGS
from healthctl.rendering.blocks import Block, Cell, Column, Facts, Line, Rows, Tone, Value, format_timestamp, state_cell
from remediator.model.views import ActionView, Awaited, DecisionView, IncidentView, Lack, NoteView, StepView, WordView


def incident_title(incident: IncidentView) -> str:
    """What it is about; a test fault is named as one, whole or in part."""
    if incident.partly_injected:
        return f"[partly injected] {incident.title}"
    marked = incident.injected and "injected" not in incident.title
    return f"[injected] {incident.title}" if marked else incident.title


def incident_state_cell(incident: IncidentView) -> Value:
    """Its state, and whether a step of it reached nobody."""
    untold = any(step.lacks is Lack.TOLD_NOBODY for step in incident.steps)
    return Cell(f"{incident.state}, {Lack.TOLD_NOBODY.value}", Tone.WARN) if untold else state_cell(incident.state)


INCIDENTS: Sequence[Column[IncidentView]] = (
    Column("INCIDENT", lambda i: i.id),
    Column("NODE", lambda i: i.node),
    Column("STATE", incident_state_cell),
    Column("OPENED", lambda i: format_timestamp(i.opened_at)),
    Column("CLOSED", lambda i: format_timestamp(i.closed_at), wide=True),
    Column("LOOKED AFTER BY", lambda i: i.acknowledged_by, wide=True),
    Column("OUTCOME", lambda i: i.outcome, wide=True),
    Column("TITLE", incident_title, prose=True),
)


def action_outcome(done: ActionView | StepView) -> Value:
    """What became of an action or a step. What told nobody, and a part that is not there yet, are no successes."""
    if isinstance(done, ActionView) and done.began_at is not None and done.finished_at is None:
        return f"{done.state} since {format_timestamp(done.began_at)}"
    return Cell(done.lacks.value, Tone.WARN) if done.lacks is not Lack.NOTHING else state_cell(done.state)


ACTIONS: Sequence[Column[ActionView]] = (
    Column("PLANNED", lambda a: format_timestamp(a.planned_at)),
    Column("ACTION", lambda a: a.verb),
    Column("NODE", lambda a: a.node),
    Column("STATE", action_outcome),
    Column("FINISHED", lambda a: format_timestamp(a.finished_at), wide=True),
    Column("DEADLINE", lambda a: format_timestamp(a.deadline), wide=True),
    Column("TRIES", lambda a: str(a.attempts), wide=True),
    Column("ID", lambda a: a.id, wide=True),
    Column("DETAIL", lambda a: a.detail, prose=True),
)
_STEPS: Sequence[Column[StepView]] = (
    Column("STEP", lambda s: s.text),
    Column("STATE", action_outcome),
    Column("DETAIL", lambda s: s.detail, prose=True),
)
_AWAITED: Sequence[Column[Awaited]] = (
    Column("WAITS FOR APPROVAL", lambda a: Cell(a.text, Tone.WARN), prose=True),
    Column("ID", lambda a: a.id),
)
_NOTES: Sequence[Column[NoteView]] = (
    Column("NOTED", lambda n: format_timestamp(n.at)),
    Column("BY", lambda n: n.actor),
    Column("NOTE", lambda n: n.text, prose=True),
)


def format_proposed_steps(stages: Sequence[Sequence[str]]) -> str:
    """The steps of a plan that is not begun, numbered; those that go side by side under one number.

    >>> format_proposed_steps([["cordon"], ["ticket", "alert"]])
    '1 cordon, 2 ticket and alert'
    """
    return ", ".join(f"{number} {' and '.join(stage)}" for number, stage in enumerate(stages, 1))


def render_incident_page(incident: IncidentView) -> Iterator[Block]:
    """One incident, whole."""
    yield Facts(
        [
            ("incident", incident.id),
            ("what", incident_title(incident)),
            ("node", incident.node),
            ("state", state_cell(incident.state)),
            ("opened", format_timestamp(incident.opened_at)),
            ("closed", format_timestamp(incident.closed_at)),
            ("outcome", incident.outcome),
            ("a word on it", _format_operator_note(incident.word)),
            ("looked after by", incident.acknowledged_by),
            ("would be done", format_proposed_steps(incident.proposed)),
        ]
    )
    for rows in (
        Rows(incident.awaits, _AWAITED),
        Rows(incident.notes, _NOTES),
        Rows(incident.steps, _STEPS),
        Rows(incident.findings, FINDINGS),
    ):
        if rows.items:
            yield rows
    yield from _render_decisions(incident.decisions)
    if incident.actions:
        yield Rows(incident.actions, ACTIONS)


def _format_operator_note(word: WordView | None) -> str:
    """For how long what a person said of it counts, of what is still asserted."""
    if word is None:
        return ""
    said = f"{word.said} at {format_timestamp(word.at)}"
    if word.until is None:
        return f"{said}; it goes on counting"
    return f"{said}; a fatal fault of it that is seen anew after {format_timestamp(word.until)} is a new incident"


def _render_decisions(decisions: Sequence[DecisionView]) -> Iterator[Line]:
    """A line for each, and below it why and what each guard said, a line each: together they fill no terminal's width."""
    for each in decisions:
        yield Line(f"{format_timestamp(each.at)}  decided: {each.answer}, by {each.rule} of {each.policy}")
        for said in (each.reason, *(guard for guard in each.guards if guard not in each.reason)):
            if said:
                yield Line(said, 2)

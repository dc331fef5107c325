"""Formats an incident, its decisions and its actions for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.pages.node_page import FINDINGS
from healthctl.rendering.blocks import Block, Cell, Column, Facts, Line, Rows, Tone, Value, format_timestamp, state_cell
from remediator.model.views import ActionView, Awaited, DecisionView, IncidentView, Lack, NoteView, StepView, WordView


def incident_title(incident: IncidentView) -> str:
    """The title; marks test faults as injected, entirely or partly."""
    if incident.partly_injected:
        return f"[partly injected] {incident.title}"
    marked = incident.injected and "injected" not in incident.title
    return f"[injected] {incident.title}" if marked else incident.title


def incident_state_cell(incident: IncidentView) -> Value:
    """The state, and whether a notification was not delivered."""
    untold = any(step.lacks is Lack.TOLD_NOBODY for step in incident.steps)
    return Cell(f"{incident.state}, {Lack.TOLD_NOBODY.value}", Tone.WARN) if untold else state_cell(incident.state)


INCIDENTS: Sequence[Column[IncidentView]] = (
    Column("INCIDENT", lambda i: i.id),
    Column("NODE", lambda i: i.node),
    Column("STATE", incident_state_cell),
    Column("OPENED", lambda i: format_timestamp(i.opened_at)),
    Column("CLOSED", lambda i: format_timestamp(i.closed_at), wide=True),
    Column("ASSIGNED TO", lambda i: i.acknowledged_by, wide=True),
    Column("OUTCOME", lambda i: i.outcome, wide=True),
    Column("TITLE", incident_title, prose=True),
)


def action_outcome(done: ActionView | StepView) -> Value:
    """The result of an action or step. An undelivered notification and a missing replacement part do not count as success."""
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
    """The steps of a plan that has not started, numbered; parallel steps share a number.

    >>> format_proposed_steps([["cordon"], ["ticket", "alert"]])
    '1 cordon, 2 ticket and alert'
    """
    return ", ".join(f"{number} {' and '.join(stage)}" for number, stage in enumerate(stages, 1))


def render_incident_page(incident: IncidentView) -> Iterator[Block]:
    """One incident in detail."""
    yield Facts(
        [
            ("incident", incident.id),
            ("what", incident_title(incident)),
            ("node", incident.node),
            ("state", state_cell(incident.state)),
            ("opened", format_timestamp(incident.opened_at)),
            ("closed", format_timestamp(incident.closed_at)),
            ("outcome", incident.outcome),
            ("operator note", _format_operator_note(incident.word)),
            ("assigned to", incident.acknowledged_by),
            ("proposed", format_proposed_steps(incident.proposed)),
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
    """How long an operator's note counts, and for which active findings."""
    if word is None:
        return ""
    said = f"{word.said} at {format_timestamp(word.at)}"
    if word.until is None:
        return f"{said}; it stays in effect"
    return f"{said}; a new fatal fault of it after {format_timestamp(word.until)} opens a new incident"


def _render_decisions(decisions: Sequence[DecisionView]) -> Iterator[Line]:
    """One line per decision, then its reason and the result of each guard, one line each."""
    for each in decisions:
        yield Line(f"{format_timestamp(each.at)}  decided: {each.answer}, by {each.rule} of {each.policy}")
        for said in (each.reason, *(guard for guard in each.guards if guard not in each.reason)):
            if said:
                yield Line(said, 2)

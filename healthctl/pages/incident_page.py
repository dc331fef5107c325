"""Renders incidents with their decisions and actions. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.pages.node_page import FINDINGS
from healthctl.rendering.blocks import Block, Cell, Column, Facts, Line, Rows, Tone, Value, format_timestamp, state_cell
from remediator.model.views import (
    ActionView,
    DecisionView,
    IncidentView,
    MissingOutcome,
    NoteView,
    PendingApproval,
    SettlementView,
    StepView,
)
from remediator.model.views_evidence import IncidentStacks
from vocabulary.text.plurals import format_count


def incident_title(incident: IncidentView) -> str:
    """The incident's title, marked if all or part of it is an injected test fault."""
    if incident.partly_injected:
        return f"[partly injected] {incident.title}"
    marked = incident.injected and "injected" not in incident.title
    return f"[injected] {incident.title}" if marked else incident.title


def incident_state_cell(incident: IncidentView) -> Value:
    """The incident's state, and whether an alert of it was not delivered."""
    if any(step.lacks is MissingOutcome.TOLD_NOBODY for step in incident.steps):
        return Cell(f"{incident.state}, {MissingOutcome.TOLD_NOBODY.text}", Tone.WARN)
    return state_cell(incident.state)


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
    """The outcome of an action or a step. An undelivered alert or a missing part is not shown as a success."""
    if isinstance(done, ActionView) and done.began_at is not None and done.finished_at is None:
        return f"{done.state} since {format_timestamp(done.began_at)}"
    return Cell(done.lacks.text, Tone.WARN) if done.lacks is not MissingOutcome.NOTHING else state_cell(done.state)


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
_AWAITED: Sequence[Column[PendingApproval]] = (
    Column("AWAITING APPROVAL", lambda a: Cell(a.text, Tone.WARN), prose=True),
    Column("ID", lambda a: a.id),
)
_NOTES: Sequence[Column[NoteView]] = (
    Column("NOTED", lambda n: format_timestamp(n.at)),
    Column("BY", lambda n: n.actor),
    Column("NOTE", lambda n: n.text, prose=True),
)


def format_proposed_steps(stages: Sequence[Sequence[str]]) -> str:
    """The steps of a plan that has not started, numbered by stage.

    >>> format_proposed_steps([["cordon"], ["ticket", "alert"]])
    '1 cordon, 2 ticket and alert'
    """
    return ", ".join(f"{number} {' and '.join(stage)}" for number, stage in enumerate(stages, 1))


def render_incident_page(incident: IncidentView) -> Iterator[Block]:
    """Render one incident with all its parts."""
    yield Facts(
        [
            ("incident", incident.id),
            ("title", incident_title(incident)),
            ("node", incident.node),
            ("state", state_cell(incident.state)),
            ("opened", format_timestamp(incident.opened_at)),
            ("closed", format_timestamp(incident.closed_at)),
            ("outcome", incident.outcome),
            ("operator", _format_operator_note(incident.word)),
            ("assigned to", incident.acknowledged_by),
            ("proposed plan", format_proposed_steps(incident.proposed)),
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


def _format_operator_note(word: SettlementView | None) -> str:
    """What an operator decided about the incident, and for how long that is valid for findings that stay active."""
    if word is None:
        return ""
    said = f"{word.said} at {format_timestamp(word.at)}"
    if word.until is None:
        return f"{said}; applies until there is a new finding"
    return f"{said}; a fatal finding seen after {format_timestamp(word.until)} opens a new incident"


def _render_decisions(decisions: Sequence[DecisionView]) -> Iterator[Line]:
    """One line per decision, followed by its reason and each guard's answer on lines of their own."""
    for each in decisions:
        yield Line(f"{format_timestamp(each.at)}  decided: {each.answer}, by {each.rule} of {each.policy}")
        for said in (each.reason, *(guard for guard in each.guards if guard not in each.reason)):
            if said:
                yield Line(said, 2)


def render_incident_stacks(stacks: IncidentStacks) -> Iterator[Line]:
    """Render the trees of an incident's jobs, outermost frames first."""
    for job in stacks.jobs:
        places = ", ".join(f"{number} in {place}" for place, number in job.places.items())
        read = format_timestamp(job.to_at)
        yield Line(f"{format_count(job.ranks, 'rank')} of {job.job}, attempt {job.attempt}, read {read}: {places}")
        for line in job.lines:
            yield Line(line, 2)
    if not stacks.jobs:
        yield Line("no stacks received")

"""What happened around one incident in one row of moments, and how long each step took. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import msgspec

from remediator.model.views import ActionView, IncidentView
from remediator.web.incident_progress import step_text

MOMENTS_SHOWN = 200
TOGETHER_S = 10.0  # within which the same on many nodes is one moment
ALIKE_MIN = 3


class TimelineMoment(msgspec.Struct, frozen=True):
    """One thing that happened, on so many nodes at once. `since_before` and `since_first` are seconds; None: the first, or clocks disagree."""

    at: float  # UTC s
    kind: str  # finding, incident, decision, action or person
    text: str
    by: str = ""  # a person
    nodes: tuple[str, ...] = ()
    since_before: float | None = None
    since_first: float | None = None


def build_incident_timeline(view: IncidentView) -> list[TimelineMoment]:
    """Findings, decisions, actions and people's words, oldest first.

    A finding's time is by its node's clock, all others by the centre's.
    """
    moments = sorted(
        _collect_moments(view), key=lambda moment: moment.at
    )  # stable: what caused stands before what followed
    told: list[TimelineMoment] = []
    for moment in moments:
        before = moment.at - told[-1].at if told else None
        first = moment.at - told[0].at if told else None
        told.append(msgspec.structs.replace(moment, since_before=before, since_first=first))
    return told


def format_latency(seconds: float | None) -> str:
    """A latency: milliseconds below a second, a decimal below ten, then rough.

    >>> [format_latency(s) for s in (None, 0.0004, 0.0123, 0.9, 2.34, 75, 7300, -1)]
    ['–', '<1 ms', '12 ms', '900 ms', '2.3 s', '1 min 15 s', '2 h 1 min', '–']
    """
    if seconds is None or not 0 <= seconds < 1e12:
        return "–"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "<1 ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, smaller, less in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            rest = int(seconds % size // less)
            return f"{int(seconds // size)} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{seconds:.0f} s"


def _collect_moments(view: IncidentView) -> Iterator[TimelineMoment]:
    for finding in view.findings:
        yield TimelineMoment(
            finding.first_seen,
            "finding",
            f"{finding.kind} on {finding.component}: {finding.summary}",
            nodes=(finding.node,),
        )
        if finding.cleared_at is not None:
            yield TimelineMoment(
                finding.cleared_at, "finding", f"{finding.kind} is over: {finding.cleared_by}", nodes=(finding.node,)
            )
    yield TimelineMoment(view.opened_at, "incident", "the incident is opened")
    for decision in view.decisions:
        rule = f" by rule {decision.rule}" if decision.rule else ""
        yield TimelineMoment(decision.at, "decision", f"{decision.answer}{rule}: {decision.reason}")
    planned = [(action.planned_at, action) for action in view.actions]
    ended = [(action.finished_at, action) for action in view.actions if action.finished_at is not None]
    for at, alike in _group_like_actions(planned, lambda action: (action.verb,)):
        yield TimelineMoment(
            at, "action", f"{step_text(alike[0].verb)} is planned", nodes=tuple(action.node for action in alike)
        )
    begun = [(action.began_at, action) for action in view.actions if action.began_at is not None]
    for at, alike in _group_like_actions(begun, lambda action: (action.verb,)):
        yield TimelineMoment(
            at, "action", f"{step_text(alike[0].verb)} is begun", nodes=tuple(action.node for action in alike)
        )
    for at, alike in _group_like_actions(
        ended, lambda action: (action.verb, action.state, action.lacks, action.detail)
    ):
        yield TimelineMoment(at, "action", _actions_ended_text(alike), nodes=tuple(action.node for action in alike))
    if view.acknowledged_at is not None:
        yield TimelineMoment(view.acknowledged_at, "person", "looks after it", view.acknowledged_by)
    for note in view.notes:
        yield TimelineMoment(note.at, "person", note.text, note.actor)
    if view.closed_at is not None:
        yield TimelineMoment(
            view.closed_at, "incident", f"it is closed: {view.outcome}" if view.outcome else "it is closed"
        )


def _group_like_actions(
    found: list[tuple[float, ActionView]], key: Callable[[ActionView], Hashable]
) -> Iterator[tuple[float, list[ActionView]]]:
    """When the first of what is alike came, and all of it; what is not alike often enough stays by itself."""
    groups: dict[Hashable, list[list[tuple[float, ActionView]]]] = {}
    for at, action in sorted(found, key=lambda each: each[0]):
        runs = groups.setdefault(key(action), [])
        if runs and at - runs[-1][0][0] <= TOGETHER_S:
            runs[-1].append((at, action))
        else:
            runs.append([(at, action)])
    for run in (run for runs in groups.values() for run in runs):
        if len(run) >= ALIKE_MIN:
            yield run[0][0], [action for _, action in run]
        else:
            yield from ((at, [action]) for at, action in run)


def _actions_ended_text(alike: list[ActionView]) -> str:
    took = sorted((action.finished_at or 0.0) - action.planned_at for action in alike)
    least, most = format_latency(took[0]), format_latency(took[-1])
    words = f"{step_text(alike[0].verb)} {alike[0].lacks.value or alike[0].state} after {least}" + (
        f" to {most}" if most != least else ""
    )
    return words + (f": {alike[0].detail}" if alike[0].detail else "")

"""The timeline of one incident: its events and the time between them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import msgspec

from remediator.model.views import ActionView, IncidentView, MissingOutcome
from remediator.web.incident_progress import step_text

MOMENTS_SHOWN = 200
TOGETHER_S = 10.0  # the same event on many nodes within this time is one moment
ALIKE_MIN = 3


class TimelineMoment(msgspec.Struct, frozen=True):
    """One event, possibly on many nodes at once. `since_before` and `since_first` are seconds, None for the first event."""

    at: float  # UTC s
    kind: str  # finding, incident, decision, action or person
    text: str
    by: str = ""  # a person
    nodes: tuple[str, ...] = ()
    since_before: float | None = None
    since_first: float | None = None


def build_incident_timeline(view: IncidentView) -> list[TimelineMoment]:
    """Findings, decisions, actions, acknowledgements and notes, oldest first.

    A finding's time is by its node's clock, all other times are by the controller's.
    """
    moments = sorted(
        _collect_moments(view), key=lambda moment: moment.at
    )  # a stable sort keeps causes before their effects
    timeline: list[TimelineMoment] = []
    for moment in moments:
        before = moment.at - timeline[-1].at if timeline else None
        first = moment.at - timeline[0].at if timeline else None
        timeline.append(msgspec.structs.replace(moment, since_before=before, since_first=first))
    return timeline


def format_latency(seconds: float | None) -> str:
    """Format a latency: milliseconds below one second, one decimal below ten seconds, then the two largest units.

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
                finding.cleared_at, "finding", f"{finding.kind} cleared: {finding.cleared_by}", nodes=(finding.node,)
            )
    yield TimelineMoment(view.opened_at, "incident", "incident opened")
    for decision in view.decisions:
        rule = f" by rule {decision.rule}" if decision.rule else ""
        yield TimelineMoment(
            decision.at, "decision", f"{decision.answer}{rule}"
        )  # its reason is in the list of decisions
    planned = [(action.planned_at, action) for action in view.actions]
    ended = [(action.finished_at, action) for action in view.actions if action.finished_at is not None]
    for at, alike in _group_like_actions(planned, lambda action: (action.verb,)):
        yield TimelineMoment(
            at, "action", f"{step_text(alike[0].verb)} planned", nodes=tuple(action.node for action in alike)
        )
    begun = [(action.began_at, action) for action in view.actions if action.began_at is not None]
    for at, alike in _group_like_actions(begun, lambda action: (action.verb,)):
        yield TimelineMoment(
            at, "action", f"{step_text(alike[0].verb)} started", nodes=tuple(action.node for action in alike)
        )
    for at, alike in _group_like_actions(
        ended, lambda action: (action.verb, action.state, action.lacks, action.detail)
    ):
        yield TimelineMoment(at, "action", _actions_ended_text(alike), nodes=tuple(action.node for action in alike))
    if view.acknowledged_at is not None:
        yield TimelineMoment(view.acknowledged_at, "person", "acknowledged", view.acknowledged_by)
    for note in view.notes:
        yield TimelineMoment(note.at, "person", note.text, note.actor)
    if view.closed_at is not None:
        yield TimelineMoment(
            view.closed_at, "incident", f"incident closed: {view.outcome}" if view.outcome else "incident closed"
        )


def _group_like_actions(
    found: list[tuple[float, ActionView]], key: Callable[[ActionView], Hashable]
) -> Iterator[tuple[float, list[ActionView]]]:
    """Yield groups of similar actions within `TOGETHER_S` with the time of the first; small groups stay separate."""
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
    first = alike[0]
    # The alerts page explains it once for all alerts.
    detail = "" if first.lacks is MissingOutcome.TOLD_NOBODY else first.detail
    text = f"{step_text(first.verb)} {first.lacks.text or first.state} after {least}"
    return text + (f" to {most}" if most != least else "") + (f": {detail}" if detail else "")

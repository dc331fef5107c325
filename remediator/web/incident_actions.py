"""What people may do with incidents: a row each. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remediator.model.views import IncidentView


class IncidentAction(msgspec.Struct, frozen=True):
    """One button. `fits` says whether it makes sense now; `asked` whether a page of its own asks first."""

    word: str
    route: str
    title: str
    does: str
    fits: Callable[[IncidentView], bool]
    asked: bool = True
    grave: bool = False


def _is_open(incident: IncidentView) -> bool:
    return incident.state != "closed"


DEEDS: dict[str, IncidentAction] = {
    deed.word: deed
    for deed in (
        IncidentAction(
            "approve",
            "approve",
            "Approve",
            "What it waits for is done, as the plan says. Guards and budgets are asked once more before each step.",
            lambda incident: bool(incident.awaits),
            grave=True,
        ),
        IncidentAction(
            "acknowledge",
            "acknowledge",
            "I look after it",
            "",
            lambda i: _is_open(i) and not i.acknowledged_at,
            asked=False,
        ),
        IncidentAction("note", "notes", "Write a note", "", lambda _: True, asked=False),
        IncidentAction(
            "resolve",
            "resolve",
            "Resolve",
            "It is over: the incident is closed, and what was planned and not done is cancelled. If the findings stay, "
            "nothing more is done about them until something new is found.",
            lambda incident: incident.state in {"open", "waiting"},
        ),
        IncidentAction(
            "reopen",
            "reopen",
            "Reopen",
            "It was not over: the incident is open again and is decided upon anew, and only a person closes it.",
            lambda incident: not _is_open(incident),
        ),
    )
}


def offered_incident_actions(incident: IncidentView) -> list[IncidentAction]:
    """The buttons for this incident."""
    return [deed for deed in DEEDS.values() if deed.fits(incident)]

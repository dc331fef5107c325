"""What people may do with incidents: a row each. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remediator.model.views import IncidentView


class Deed(msgspec.Struct, frozen=True):
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


DEEDS: dict[str, Deed] = {
    deed.word: deed
    for deed in (
        Deed(
            "approve",
            "approve",
            "Approve",
            "What it waits for is done, as the plan says. Guards and budgets are asked once more before each step.",
            lambda incident: bool(incident.awaits),
            grave=True,
        ),
        Deed(
            "acknowledge",
            "acknowledge",
            "I look after it",
            "",
            lambda i: _is_open(i) and not i.acknowledged_at,
            asked=False,
        ),
        Deed("note", "notes", "Write a note", "", lambda _: True, asked=False),
        Deed(
            "resolve",
            "resolve",
            "Resolve",
            "It is over: the incident is closed, and what was planned and not done is cancelled. If the findings stay, "
            "nothing more is done about them until something new is found.",
            lambda incident: incident.state in {"open", "waiting"},
        ),
        Deed(
            "reopen",
            "reopen",
            "Reopen",
            "It was not over: the incident is open again and is decided upon anew, and only a person closes it.",
            lambda incident: not _is_open(incident),
        ),
    )
}


def offered(incident: IncidentView) -> list[Deed]:
    """The buttons for this incident."""
    return [deed for deed in DEEDS.values() if deed.fits(incident)]

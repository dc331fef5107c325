"""The actions that operators can take on an incident, as a table. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remediator.model.views import IncidentView


class IncidentAction(msgspec.Struct, frozen=True):
    """One button. `fits` says whether it applies now; `asked`, whether a page of its own asks for confirmation."""

    word: str
    route: str
    title: str
    does: str
    fits: Callable[[IncidentView], bool]
    asked: bool = True
    dangerous: bool = False


def _is_open(incident: IncidentView) -> bool:
    return incident.state != "closed"


INCIDENT_ACTIONS: dict[str, IncidentAction] = {
    action.word: action
    for action in (
        IncidentAction(
            "approve",
            "approve",
            "Approve",
            "The plan starts. Guards and budgets are checked again before each step.",
            lambda incident: bool(incident.awaits),
            dangerous=True,
        ),
        IncidentAction(
            "acknowledge",
            "acknowledge",
            "Assign to me",
            "",
            lambda i: _is_open(i) and not i.acknowledged_at,
            asked=False,
        ),
        IncidentAction("note", "notes", "Add a note", "", lambda _: True, asked=False),
        IncidentAction(
            "resolve",
            "resolve",
            "Resolve",
            "Closes the incident and cancels its planned actions. If the findings stay active, automation does nothing "
            "about them until something new is found.",
            lambda incident: incident.state in {"open", "waiting"},
        ),
        IncidentAction(
            "reopen",
            "reopen",
            "Reopen",
            "Opens the incident again for a new decision. From then on only an operator can close it.",
            lambda incident: not _is_open(incident),
        ),
    )
}


def offered_incident_actions(incident: IncidentView) -> list[IncidentAction]:
    """The actions that apply to this incident now."""
    return [action for action in INCIDENT_ACTIONS.values() if action.fits(incident)]

"""`/incidents`: the open ones first, then those that are over; what is asked for stands in the address."""

from __future__ import annotations

from starlette.responses import Response

from remediator.api.render import incident_view
from remediator.model.records import Answer, Incident, IncidentState
from remediator.model.views import IncidentList, IncidentView
from remediator.web.progress import doing
from remediator.web.visit import Visit

SHOWN = 200
STATES = ("open", "acting", "waiting", "closed")
_FIRST = {IncidentState.WAITING: 0, IncidentState.ACTING: 1, IncidentState.OPEN: 2}


async def show(visit: Visit) -> Response:
    """The list."""
    state, match = visit.query("state"), visit.query("match").strip()
    state = state if state in STATES else ""
    known = visit.service.engine.snapshot.incidents
    wanted = [i for i in known.values() if state in {"", i.state.value} and _fits(i, match)]
    wanted.sort(key=lambda i: (_urgency(i), -i.opened_at, i.id))
    over: list[IncidentView] = []
    if state in {"", "closed"}:
        recent = (await visit.ask("/v1/incidents", IncidentList)).incidents
        over = [view for view in recent if view.state == "closed" and _fits(view, match)]
    return await visit.page(
        "incidents.html.j2",
        title="Incidents",
        incidents=[(incident_view(i), doing(incident_view(i), i.answer, i.rule)) for i in wanted[:SHOWN]],
        total=len(wanted),
        over=sorted(over, key=lambda view: -(view.closed_at or 0.0)),
        state=state,
        match=match,
        states=STATES,
    )


def _urgency(incident: Incident) -> int:
    quiet = incident.state is IncidentState.OPEN and incident.answer is Answer.WATCH
    return 3 if quiet else _FIRST.get(incident.state, 3)


def _fits(incident: Incident | IncidentView, match: str) -> bool:
    word = match.casefold()
    return any(word in text.casefold() for text in (incident.node, incident.id, incident.title))

"""`/incidents`: the open ones first, then those that are over; what is asked for stands in the address."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from remediator.api.render import incident_view
from remediator.model.records import Incident
from remediator.model.views import IncidentList, IncidentView
from remediator.web.gravity import drill, findings_of, gravest_first, worst
from remediator.web.progress import doing
from remediator.web.visit import Visit
from vocabulary.finding import Finding, Severity

SHOWN = 200
STATES = ("open", "acting", "waiting", "closed")


async def show(visit: Visit) -> Response:
    """The list."""
    state, match = visit.query("state"), visit.query("match").strip()
    state = state if state in STATES else ""
    known = visit.service.engine.snapshot.incidents
    wanted = [i for i in known.values() if state in {"", i.state.value} and _fits(i, match)]
    findings = visit.service.engine.snapshot.findings
    wanted = await asyncio.to_thread(gravest_first, wanted, findings)
    over: list[IncidentView] = []
    if state in {"", "closed"}:
        recent = (await visit.ask("/v1/incidents", IncidentList)).incidents
        over = [view for view in recent if view.state == "closed" and _fits(view, match)]
    return await visit.page(
        "incidents.html.j2",
        title="Incidents",
        incidents=[_row(i, findings_of(i, findings)) for i in wanted[:SHOWN]],
        total=len(wanted),
        over=sorted(over, key=lambda view: -(view.closed_at or 0.0)),
        state=state,
        match=match,
        states=STATES,
    )


def _row(incident: Incident, findings: list[Finding]) -> tuple[IncidentView, str, Severity | None, str]:
    view = incident_view(incident)
    now = doing(view, incident.answer, incident.rule)
    return view, now, worst(findings), drill(findings, injected=incident.injected)


def _fits(incident: Incident | IncidentView, match: str) -> bool:
    word = match.casefold()
    return any(word in text.casefold() for text in (incident.node, incident.id, incident.title))

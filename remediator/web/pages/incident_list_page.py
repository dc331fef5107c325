"""`/incidents`: open incidents, then closed ones; the filter is in the query string."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from remediator.model.journal_records import Incident
from remediator.model.views import IncidentList, IncidentView
from remediator.web.incident_grouping import NAMED, IncidentGroup, group_incidents
from remediator.web.incident_rows import incident_group_rows
from remediator.web.page_request import PageRequest
from remediator.web.severity_order import order_by_severity

SHOWN = 200
STATES = ("open", "acting", "waiting", "closed")


async def show_incident_list(visit: PageRequest) -> Response:
    """The list."""
    state, match = visit.query("state"), visit.query("match").strip()
    state = state if state in STATES else ""
    known = visit.service.engine.snapshot.incidents
    wanted = [i for i in known.values() if state in {"", i.state.value} and _incident_fits(i, match)]
    findings = visit.service.engine.snapshot.findings
    wanted = await asyncio.to_thread(order_by_severity, wanted, findings)
    groups = (
        await asyncio.to_thread(group_incidents, wanted, findings)
        if not match
        else [IncidentGroup((i,)) for i in wanted]
    )
    shown = await incident_group_rows(visit, groups[:SHOWN])
    over: list[IncidentView] = []
    if state in {"", "closed"}:
        recent = (await visit.ask("/v1/incidents", IncidentList)).incidents
        over = [view for view in recent if view.state == "closed" and _incident_fits(view, match)]
    return await visit.page(
        "incidents.html.j2",
        title="Incidents",
        incidents=shown,
        total=len(wanted),
        shown=sum(len(row.group.incidents) for row in shown),
        named=NAMED,
        over=sorted(over, key=lambda view: -(view.closed_at or 0.0)),
        state=state,
        match=match,
        states=STATES,
    )


def _incident_fits(incident: Incident | IncidentView, match: str) -> bool:
    word = match.casefold()
    return any(word in text.casefold() for text in (incident.node, incident.id, incident.title))

"""`/stragglers`: current stragglers, slowest first, and what automation does about each."""

from __future__ import annotations

from starlette.responses import Response

from remediator.model.views_detectors import StragglerList
from remediator.web.incident_rows import incident_lines
from remediator.web.page_request import PageRequest

SHOWN = 200


async def show_stragglers_page(visit: PageRequest) -> Response:
    """The list."""
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    known = visit.service.engine.snapshot.incidents
    lines = await incident_lines(visit, [known[each.incident] for each in found[:SHOWN] if each.incident in known])
    by_incident = {line.view.id: line for line in lines}
    shown = [(each, by_incident.get(each.incident)) for each in found[:SHOWN]]
    return await visit.page("stragglers.html.j2", title="Stragglers", stragglers=shown, total=len(found))

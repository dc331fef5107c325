"""`/stragglers`: what holds jobs back now, the slowest first, and what is done about each."""

from __future__ import annotations

from starlette.responses import Response

from remediator.model.views_watch import StragglerList
from remediator.web.lines import lines
from remediator.web.visit import Visit

SHOWN = 200


async def show(visit: Visit) -> Response:
    """The list."""
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    known = visit.service.engine.snapshot.incidents
    told = await lines(visit, [known[each.incident] for each in found[:SHOWN] if each.incident in known])
    by_incident = {line.view.id: line for line in told}
    shown = [(each, by_incident.get(each.incident)) for each in found[:SHOWN]]
    return await visit.page("stragglers.html.j2", title="Stragglers", stragglers=shown, total=len(found))

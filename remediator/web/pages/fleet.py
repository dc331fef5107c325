"""`/`: what is broken, what waits for a person, and the whole fleet in one picture."""

from __future__ import annotations

from starlette.responses import Response

from remediator.model.views import IncidentList
from remediator.web.visit import Visit


async def show(visit: Visit) -> Response:
    """The first page."""
    found = await visit.ask("/v1/incidents", IncidentList)
    incidents = [i for i in found.incidents if i.closed_at is None]
    return await visit.page("fleet.html.j2", title="Fleet", incidents=incidents)

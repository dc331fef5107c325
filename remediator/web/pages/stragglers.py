"""`/stragglers`: what holds jobs back now, the slowest first."""

from __future__ import annotations

from starlette.responses import Response

from remediator.model.views_watch import StragglerList
from remediator.web.visit import Visit

SHOWN = 200


async def show(visit: Visit) -> Response:
    """The list."""
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    return await visit.page("stragglers.html.j2", title="Stragglers", stragglers=found[:SHOWN], total=len(found))

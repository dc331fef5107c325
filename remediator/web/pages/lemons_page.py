"""`/lemons`: suspected lemons, highest score first."""

from __future__ import annotations

from starlette.responses import Response

from remediator.model.views_detectors import LemonList
from remediator.web.page_request import PageRequest

SHOWN = 200


async def show_lemons_page(visit: PageRequest) -> Response:
    """The list."""
    found = (await visit.ask("/v1/lemons", LemonList)).lemons
    return await visit.page("lemons.html.j2", title="Lemons", lemons=found[:SHOWN], total=len(found))

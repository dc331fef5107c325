"""`/stragglers`: what holds jobs back now, the slowest first, and what is done about each."""

from __future__ import annotations

from starlette.responses import Response

from remediator.api.render import incident_view
from remediator.model.views import IncidentView
from remediator.model.views_watch import StragglerList, StragglerView
from remediator.web.progress import doing
from remediator.web.visit import Visit

SHOWN = 200


async def show(visit: Visit) -> Response:
    """The list."""
    found = (await visit.ask("/v1/stragglers", StragglerList)).stragglers
    incidents = visit.service.engine.snapshot.incidents

    def row(straggler: StragglerView) -> tuple[StragglerView, IncidentView | None, str]:
        incident = incidents.get(straggler.incident)
        if incident is None:
            return straggler, None, ""
        view = incident_view(incident)
        return straggler, view, doing(view, incident.answer, incident.rule)

    shown = [row(straggler) for straggler in found[:SHOWN]]
    return await visit.page("stragglers.html.j2", title="Stragglers", stragglers=shown, total=len(found))

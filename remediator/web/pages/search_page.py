"""`/search`: find nodes, incidents and jobs by name."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.responses import Response

from remediator.api.handler_context import HandlerContext
from remediator.model.journal_records import Incident
from remediator.web.page_request import PageRequest

SHOWN_MAX = 100


class SearchResult(NamedTuple):
    """Everything with the text in its name. `exact` is the page to redirect to if there is one clear match."""

    exact: str
    nodes: list[str]
    incidents: list[Incident]
    jobs: list[str]


async def show_search_page(visit: PageRequest) -> Response:
    """Redirect to a single match; otherwise list the matches."""
    text = visit.query("q").strip()
    found = await asyncio.to_thread(_search_fleet, visit.service, text)
    if found.exact:
        return visit.go(found.exact)
    return await visit.page("search.html.j2", title=f"Search {text}", text=text, found=found, shown=SHOWN_MAX)


def _search_fleet(service: HandlerContext, text: str) -> SearchResult:
    snapshot, word = service.engine.snapshot, text.casefold()
    nodes = sorted(name for name in snapshot.nodes if word in name.casefold())
    incidents = [i for i in snapshot.incidents.values() if word in i.id.casefold() or word in i.title.casefold()]
    jobs = sorted({ref.job for record in snapshot.nodes.values() for ref in record.jobs if word in ref.job.casefold()})
    exact = ""
    if text in snapshot.nodes:
        exact = f"/nodes/{text}"
    elif text and (text in snapshot.incidents or service.journal.incident(text) is not None):
        exact = f"/incidents/{text}"
    elif text in jobs:
        exact = f"/jobs/{text}"
    elif len(nodes) == 1 and not incidents and not jobs:
        exact = f"/nodes/{nodes[0]}"
    return SearchResult(exact, nodes, sorted(incidents, key=lambda i: -i.opened_at), jobs)

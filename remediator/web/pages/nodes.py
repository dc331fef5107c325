"""`/nodes`: every node, by name, a page at a time; what is asked for stands in the address."""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.responses import Response

from remediator.api.render import node_list
from remediator.model.views import NodeView
from remediator.web import heat
from remediator.web.visit import Visit

ON_A_PAGE = 100


class _Listed(NamedTuple):
    total: int
    nodes: tuple[NodeView, ...]
    places: dict[str, str]
    more: str  # the name after which the next page begins


async def show(visit: Visit) -> Response:
    """The list."""
    wanted = heat.Wanted(
        match=visit.query("match").strip(),
        state=visit.query("state"),
        health=visit.query("health"),
        place=visit.query("place"),
        broken=visit.query("broken") == "1",
    )
    found = await asyncio.to_thread(_list, visit, wanted, visit.query("after"))
    words = {name: word for name in ("match", "state", "health", "place", "broken") if (word := visit.query(name))}
    return await visit.page(
        "nodes.html.j2",
        title="Nodes",
        found=found,
        wanted=wanted,
        states=heat.STATES,
        healths=heat.HEALTHS,
        after=visit.query("after"),
        first_page="/nodes?" + urlencode(words),
        next_page="/nodes?" + urlencode(words | {"after": found.more}),
    )


def _list(visit: Visit, wanted: heat.Wanted, after: str) -> _Listed:
    snapshot = visit.service.engine.snapshot
    names = sorted(
        name for name, record in snapshot.nodes.items() if wanted.fits(heat.Seen.of(record, visit.health(name)))
    )
    shown = [name for name in names if name > after][: ON_A_PAGE + 1]
    more = shown[ON_A_PAGE - 1] if len(shown) > ON_A_PAGE else ""
    records = {name: snapshot.nodes[name] for name in shown[:ON_A_PAGE]}
    views = node_list(replace(snapshot, nodes=records), visit.service.roster, visit.now, "", ON_A_PAGE).nodes
    places = {name: record.places.rack or record.places.switch for name, record in records.items()}
    return _Listed(len(names), views, places, more)

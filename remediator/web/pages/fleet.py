"""`/`: what is broken, what waits for a person, and the whole fleet in one picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from remediator.model.views import StatusView
from remediator.model.views_work import AwaitingList
from remediator.web import heat, lines
from remediator.web.alike import NAMED, together
from remediator.web.asked import askings
from remediator.web.gravity import gravest_first
from remediator.web.recent import Recent
from remediator.web.rendering import HEADERS
from remediator.web.visit import Visit

INCIDENTS_SHOWN = 12
AWAITING_SHOWN = 8
GROUPS_SHOWN = 100


async def show(visit: Visit) -> Response:
    """The first page."""
    wanted, by, colour = _asked(visit)
    snapshot = visit.service.engine.snapshot
    incidents = await asyncio.to_thread(gravest_first, snapshot.incidents.values(), snapshot.findings)
    groups = (await asyncio.to_thread(together, incidents, snapshot.findings))[:INCIDENTS_SHOWN]
    awaiting = (await visit.ask("/v1/awaiting", AwaitingList)).awaiting
    asked = askings(awaiting, snapshot.incidents, snapshot.findings)
    rows = await asyncio.to_thread(_rows, visit, wanted, by)
    return await visit.page(
        "fleet.html.j2",
        title="Fleet",
        incidents=await lines.rows(visit, groups),
        named=NAMED,
        incidents_total=len(incidents),
        incidents_shown=sum(len(group.incidents) for group in groups),
        askings=asked[:AWAITING_SHOWN],
        askings_shown=sum(len(each.awaiting) for each in asked[:AWAITING_SHOWN]),
        awaiting_total=len(awaiting),
        rows=rows[:GROUPS_SHOWN],
        rows_total=len(rows),
        drawn=sum(row.total for row in rows),
        broken=sum(row.broken for row in rows),
        wanted=wanted,
        by=by,
        colour=colour,
        groupings=heat.GROUPINGS,
        counts=_counts(await visit.status()),
        legend=heat.legend(rows, by_health=colour == "health"),
        picture="/fleet.json?" + urlencode(_words(wanted) | {"by": by}),
    )


async def picture(visit: Visit) -> Response:
    """`GET /fleet.json`: the same nodes for the heat map; named by ETag, so that what did not change is not sent again."""
    wanted, by, _ = _asked(visit)

    def drawn() -> tuple[str, bytes]:
        found = heat.picture(_groups(visit, wanted, by), by, visit.now)
        etag = f'"{sha256(msgspec.msgpack.encode(replace(found, at=0.0))).hexdigest()[:32]}"'
        return etag, msgspec.json.encode(found)

    etag, body = await asyncio.to_thread(drawn)
    headers = HEADERS | {"ETag": etag}
    if visit.request.headers.get("if-none-match") == etag:
        return Response(None, 304, headers)
    return Response(body, headers=headers, media_type="application/json")


def _counts(status: StatusView) -> list[tuple[str, int]]:
    """How many nodes are in each state, in the order in which a node goes through them."""
    known = {word: number for word in heat.STATES if (number := status.nodes_by_state.get(word))}
    return [*(known | status.nodes_by_state).items()]


def _asked(visit: Visit) -> tuple[heat.Wanted, str, str]:
    wanted = heat.Wanted(
        match=visit.query("match").strip(),
        state=_known(visit.query("state"), heat.STATES),
        health=_known(visit.query("health"), heat.HEALTHS),
        place=visit.query("place"),
        broken=visit.query("broken") == "1",
    )
    return wanted, _known(visit.query("by"), heat.GROUPINGS) or "rack", _known(visit.query("colour"), ("health",))


def _known(word: str, words: tuple[str, ...]) -> str:
    return word if word in words else ""


def _words(wanted: heat.Wanted) -> dict[str, str]:
    words = {"match": wanted.match, "state": wanted.state, "health": wanted.health, "place": wanted.place}
    return {name: word for name, word in words.items() if word} | ({"broken": "1"} if wanted.broken else {})


def _rows(visit: Visit, wanted: heat.Wanted, by: str) -> list[heat.Row]:
    return _lately(visit).rows.get((wanted, by), lambda: heat.rows(_groups(visit, wanted, by)))


def _groups(visit: Visit, wanted: heat.Wanted, by: str) -> heat.Groups:
    records = visit.service.engine.snapshot.nodes.values()
    return _lately(visit).groups.get((wanted, by), lambda: heat.look(records, visit.health, wanted, by))


class _Lately:
    """What was found out just now, for all who look."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.rows: Recent[list[heat.Row]] = Recent(now)
        self.groups: Recent[heat.Groups] = Recent(now)


def _lately(visit: Visit) -> _Lately:
    state = visit.request.app.state
    if not hasattr(state, "fleet_lately"):
        state.fleet_lately = _Lately(visit.service.clock.monotonic)
    found: _Lately = state.fleet_lately
    return found

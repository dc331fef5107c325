"""`/`: what is broken, what waits for a person, and the whole fleet in one picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from remediator.api.render import incident_view
from remediator.decide.approval import proposed
from remediator.engine import Snapshot
from remediator.model.views import IncidentView, StatusView
from remediator.model.views_work import AwaitingList
from remediator.web import heat
from remediator.web.alike import Alike, together
from remediator.web.gravity import drill, findings_of, gravest_first, worst
from remediator.web.progress import doing
from remediator.web.recent import Recent
from remediator.web.rendering import HEADERS
from remediator.web.visit import Visit
from vocabulary.finding import Severity

INCIDENTS_SHOWN = 12
AWAITING_SHOWN = 8
GROUPS_SHOWN = 100
NAMED = 20  # nodes of one row


async def show(visit: Visit) -> Response:
    """The first page."""
    wanted, by, colour = _asked(visit)
    snapshot = visit.service.engine.snapshot
    incidents = await asyncio.to_thread(gravest_first, snapshot.incidents.values(), snapshot.findings)
    rules = visit.service.engine.settings.policy.by_name
    groups = (await asyncio.to_thread(together, incidents, snapshot.findings))[:INCIDENTS_SHOWN]
    awaiting = (await visit.ask("/v1/awaiting", AwaitingList)).awaiting
    rows = await asyncio.to_thread(_rows, visit, wanted, by)
    return await visit.page(
        "fleet.html.j2",
        title="Fleet",
        incidents=[_broken(visit, group, proposed(group.first, rules)) for group in groups],
        named=NAMED,
        incidents_total=len(incidents),
        incidents_shown=sum(len(group.incidents) for group in groups),
        awaiting=[(a, _drill(snapshot, a.incident)) for a in awaiting[:AWAITING_SHOWN]],
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


class _Broken(msgspec.Struct, frozen=True):
    """A row of what is broken. `proposed` are stages of steps that somebody or something keeps from being done."""

    group: Alike
    view: IncidentView
    doing: str
    worst: Severity | None
    drill: str
    proposed: tuple[tuple[str, ...], ...]


def _broken(visit: Visit, group: Alike, steps: tuple[tuple[str, ...], ...]) -> _Broken:
    first, view = group.first, incident_view(group.first)
    found = findings_of(first, visit.service.engine.snapshot.findings)
    marked = drill(found, injected=first.injected)
    return _Broken(group, view, doing(view, first.answer, first.rule), worst(found), marked, steps)


def _drill(snapshot: Snapshot, incident: str) -> str:
    known = snapshot.incidents.get(incident)
    return drill(findings_of(known, snapshot.findings), injected=known.injected) if known is not None else ""


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

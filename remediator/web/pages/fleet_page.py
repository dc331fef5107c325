"""`/`: the overview: figures, pending approvals, open incidents, and the heat map of all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import sha256
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from remediator.model.views import StatusView
from remediator.model.views_actions import AwaitingList
from remediator.web import fleet_heatmap, incident_rows
from remediator.web.approval_grouping import group_approvals
from remediator.web.automation_blockers import summarize_manual_settings, summarize_reports
from remediator.web.incident_grouping import NAMED, group_incidents
from remediator.web.page_request import PageRequest
from remediator.web.response_cache import ResponseCache
from remediator.web.severity_order import order_by_severity
from remediator.web.template_rendering import HEADERS

INCIDENTS_SHOWN = 12
AWAITING_SHOWN = 8
GROUPS_SHOWN = 100


async def show_fleet_page(visit: PageRequest) -> Response:
    """The overview page."""
    wanted, by, colour = _requested_filter(visit)
    snapshot = visit.service.engine.snapshot
    incidents = await asyncio.to_thread(order_by_severity, snapshot.incidents.values(), snapshot.findings)
    groups = (await asyncio.to_thread(group_incidents, incidents, snapshot.findings))[:INCIDENTS_SHOWN]
    awaiting = (await visit.ask("/v1/awaiting", AwaitingList)).awaiting
    asked = group_approvals(awaiting, snapshot.incidents, snapshot.findings)
    rows = await asyncio.to_thread(_cached_heatmap_rows, visit, wanted, by)
    return await visit.page(
        "fleet.html.j2",
        title="Fleet",
        incidents=await incident_rows.incident_group_rows(visit, groups),
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
        groupings=fleet_heatmap.GROUPINGS,
        counts=_state_counts(await visit.status()),
        manual=summarize_manual_settings(snapshot.holds.values(), snapshot.operator_overrides, visit.now),
        reports=await asyncio.to_thread(
            summarize_reports, snapshot.nodes.values(), visit.service.report_registry, visit.now
        ),
        policy_problem=visit.service.reload.problem,
        legend=fleet_heatmap.heatmap_legend(rows, by_health=colour == "health"),
        picture="/fleet.json?" + urlencode(_filter_query(wanted) | {"by": by}),
    )


async def send_fleet_picture(visit: PageRequest) -> Response:
    """`GET /fleet.json`: the heat map's nodes; an ETag avoids sending unchanged data again."""
    wanted, by, _ = _requested_filter(visit)

    def drawn() -> tuple[str, bytes]:
        found = fleet_heatmap.build_heatmap_picture(_cached_node_groups(visit, wanted, by), by, visit.now)
        etag = f'"{sha256(msgspec.msgpack.encode(replace(found, at=0.0))).hexdigest()[:32]}"'
        return etag, msgspec.json.encode(found)

    etag, body = await asyncio.to_thread(drawn)
    headers = HEADERS | {"ETag": etag}
    if visit.request.headers.get("if-none-match") == etag:
        return Response(None, 304, headers)
    return Response(body, headers=headers, media_type="application/json")


def _state_counts(status: StatusView) -> list[tuple[str, int]]:
    """The number of nodes by state, in the order of the node lifecycle."""
    known = {word: number for word in fleet_heatmap.STATES if (number := status.nodes_by_state.get(word))}
    return [*(known | status.nodes_by_state).items()]


def _requested_filter(visit: PageRequest) -> tuple[fleet_heatmap.HeatmapFilter, str, str]:
    wanted = fleet_heatmap.HeatmapFilter(
        match=visit.query("match").strip(),
        state=_known_word(visit.query("state"), fleet_heatmap.STATES),
        health=_known_word(visit.query("health"), fleet_heatmap.HEALTHS),
        place=visit.query("place"),
        broken=visit.query("broken") == "1",
    )
    return (
        wanted,
        _known_word(visit.query("by"), fleet_heatmap.GROUPINGS) or "rack",
        _known_word(visit.query("colour"), ("health",)),
    )


def _known_word(word: str, words: tuple[str, ...]) -> str:
    return word if word in words else ""


def _filter_query(wanted: fleet_heatmap.HeatmapFilter) -> dict[str, str]:
    words = {"match": wanted.match, "state": wanted.state, "health": wanted.health, "place": wanted.place}
    return {name: word for name, word in words.items() if word} | ({"broken": "1"} if wanted.broken else {})


def _cached_heatmap_rows(
    visit: PageRequest, wanted: fleet_heatmap.HeatmapFilter, by: str
) -> list[fleet_heatmap.HeatmapRow]:
    return _fleet_page_cache(visit).rows.get(
        (wanted, by), lambda: fleet_heatmap.build_heatmap_rows(_cached_node_groups(visit, wanted, by))
    )


def _cached_node_groups(visit: PageRequest, wanted: fleet_heatmap.HeatmapFilter, by: str) -> fleet_heatmap.Groups:
    records = visit.service.engine.snapshot.nodes.values()
    return _fleet_page_cache(visit).groups.get(
        (wanted, by), lambda: fleet_heatmap.group_nodes(records, visit.health, wanted, by)
    )


class _FleetPageCache:
    """Cached rows and groups, shared by all users."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.rows: ResponseCache[list[fleet_heatmap.HeatmapRow]] = ResponseCache(now)
        self.groups: ResponseCache[fleet_heatmap.Groups] = ResponseCache(now)


def _fleet_page_cache(visit: PageRequest) -> _FleetPageCache:
    state = visit.request.app.state
    if not hasattr(state, "fleet_lately"):
        state.fleet_lately = _FleetPageCache(visit.service.clock.monotonic)
    found: _FleetPageCache = state.fleet_lately
    return found

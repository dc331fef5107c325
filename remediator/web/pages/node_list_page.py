"""`/nodes`: every node by name, in pages; the filter is in the query string."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlencode

from msgspec.structs import replace
from starlette.responses import Response

from remediator.api.record_views import node_list_view
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.rule_conditions import NodeState
from remediator.model.views import NodeView
from remediator.web import fleet_heatmap
from remediator.web.page_request import PageRequest
from vocabulary.finding import Finding, Severity

ON_A_PAGE = 100
_WHOSE = re.compile(r"^inc-\S+: ")  # the id of the incident that caused the state; the row links to it
_OURS = frozenset({"healthy", "suspect"})  # states that a finding explains better than the reason of the transition


class _NodePage(NamedTuple):
    total: int
    nodes: tuple[NodeView, ...]
    places: dict[str, str]
    whys: dict[str, str]  # why a node is in its state
    more: str  # the name after which the next page starts


async def show_node_list(visit: PageRequest) -> Response:
    """The list."""
    wanted = fleet_heatmap.HeatmapFilter(
        match=visit.query("match").strip(),
        state=visit.query("state"),
        health=visit.query("health"),
        place=visit.query("place"),
        broken=visit.query("broken") == "1",
    )
    found = await asyncio.to_thread(_list_page_of_nodes, visit, wanted, visit.query("after"))
    words = {name: word for name in ("match", "state", "health", "place", "broken") if (word := visit.query(name))}
    return await visit.page(
        "nodes.html.j2",
        title="Nodes",
        found=found,
        wanted=wanted,
        states=fleet_heatmap.STATES,
        healths=fleet_heatmap.HEALTHS,
        after=visit.query("after"),
        first_page="/nodes?" + urlencode(words),
        next_page="/nodes?" + urlencode(words | {"after": found.more}),
    )


def _list_page_of_nodes(visit: PageRequest, wanted: fleet_heatmap.HeatmapFilter, after: str) -> _NodePage:
    snapshot = visit.service.engine.snapshot
    names = sorted(
        name
        for name, record in snapshot.nodes.items()
        if wanted.fits(fleet_heatmap.NodeCell.of(record, visit.health(name)))
    )
    shown = [name for name in names if name > after][: ON_A_PAGE + 1]
    more = shown[ON_A_PAGE - 1] if len(shown) > ON_A_PAGE else ""
    records = {name: snapshot.nodes[name] for name in shown[:ON_A_PAGE]}
    views = node_list_view(
        replace(snapshot, nodes=records), visit.service.report_registry, visit.now, "", ON_A_PAGE
    ).nodes
    places = {name: record.places.rack or record.places.switch for name, record in records.items()}
    return _NodePage(len(names), views, places, _node_explanations(snapshot, views), more)


def _node_explanations(snapshot: StateSnapshot, views: Iterable[NodeView]) -> dict[str, str]:
    """Per node its incident, else its worst finding, else the reason of its state."""
    shown = {view.node for view in views}
    worst: dict[str, Finding] = {}
    for found in snapshot.findings.values():
        known = worst.get(found.node)
        if found.node in shown and found.active and (known is None or known.severity.rank < found.severity.rank):
            worst[found.node] = found
    whys = {}
    for view in views:
        incident, finding = snapshot.incidents.get(view.incident), worst.get(view.node)
        if incident is not None:
            whys[view.node] = incident.title
        elif view.state in _OURS and finding is not None and finding.severity is not Severity.INFO:
            whys[view.node] = f"{finding.kind} on {finding.component}: {finding.summary}"
        else:
            whys[view.node] = "" if view.state == NodeState.HEALTHY.value else _WHOSE.sub("", view.why)
    return whys

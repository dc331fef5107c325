"""`healthctl status`."""

from __future__ import annotations

from urllib.parse import quote

import click
import msgspec
from msgspec.structs import asdict

from healthctl.exits import Exit
from healthctl.naming import NOT_FOUND, node_path
from healthctl.next_step import next_step
from healthctl.output import text_of
from healthctl.screen import Form, Screen, view_options
from healthctl.server import Refused, Server, server_options
from healthctl.status_page import (
    LISTED_MAX,
    LISTED_WIDE_MAX,
    TOLD_MAX,
    TOLD_WIDE_MAX,
    Look,
    by_people,
    is_well,
    listed_rank,
    rank,
    status_page,
)
from remediator.model.rules import NodeState
from remediator.model.views import IncidentList, IncidentView, NodeList, NodeView, StatusView
from remediator.model.views_alerts import SilenceList
from remediator.model.views_work import AwaitingList, AwaitingView
from vocabulary.health import Health
from vocabulary.identity import NODE_NAME

CONSIDERED_MAX = 20  # open incidents whose findings are looked at, to tell the worst


class StatusShown(StatusView, frozen=True):
    """What programs get: the status, the worst open incidents whole, what waits for a yes, and what comes next by incident."""

    incidents: tuple[IncidentView, ...] = ()
    awaiting: tuple[AwaitingView, ...] = ()
    next: dict[str, str] = msgspec.field(default_factory=dict)


@click.command(
    epilog="Example: healthctl status --watch 5. Exit codes: 0 all is well, 1 something is broken or keeps automation from acting, 2 wrong usage, 3 no answer."
)
@view_options
@server_options
def status(server: Server, screen: Screen) -> None:
    """Show what is broken, what was done, why, what comes next, and how to stop it."""
    view = server.get("/v1/status", StatusView)
    screen.code = Exit.OK if is_well(view) else Exit.PROBLEM
    look = _look(server, view, wide=screen.form is not Form.TABLE)
    screen.show(_shown(look) if screen.is_document else view, lambda: status_page(look))


def _shown(look: Look) -> StatusShown:
    words = {each.id: text_of(next_step(each, look.nodes.get(each.node))) for each in look.told}
    return StatusShown(**asdict(look.status), incidents=tuple(look.told), awaiting=tuple(look.awaiting), next=words)


def _look(server: Server, view: StatusView, *, wide: bool) -> Look:
    told_max, listed_max = (TOLD_WIDE_MAX, LISTED_WIDE_MAX) if wide else (TOLD_MAX, LISTED_MAX)
    by_hand = _by_hand(server, view)
    if not view.incidents_open:
        return Look(view, listed_max=listed_max, by_hand=by_hand)
    listed = server.get("/v1/incidents", IncidentList, state="open").incidents
    found = sorted((each for each in listed if each.closed_at is None), key=listed_rank)
    whole = [server.get(f"/v1/incidents/{quote(each.id, safe='')}", IncidentView) for each in found[:CONSIDERED_MAX]]
    awaiting = server.get("/v1/awaiting", AwaitingList).awaiting
    told = sorted(whole, key=rank)[:told_max]
    nodes = {each.node: node for each in told if (node := _node(server, each.node)) is not None}
    return Look(view, found, told, awaiting, listed_max, nodes, by_hand)


def _by_hand(server: Server, view: StatusView) -> list[tuple[str, str]]:
    """What people keep from work or from being told, asked only where there may be some."""
    wanted = view.nodes_by_state.get(NodeState.OPERATOR_HELD.value) or view.nodes_by_health.get(Health.UNHEALTHY.value)
    nodes = server.get("/v1/nodes", NodeList).nodes if wanted else ()
    try:
        silences = server.get("/v1/alerts/silences", SilenceList).silences
    except Refused as refused:
        if refused.status != NOT_FOUND:
            raise
        silences = ()
    return by_people(nodes, silences)


def _node(server: Server, name: str) -> NodeView | None:
    """A node as it stands now; None for what several share, and for one that is gone."""
    if not NODE_NAME.fullmatch(name):
        return None
    try:
        return server.get(node_path(name), NodeView)
    except Refused as refused:
        if refused.status == NOT_FOUND:
            return None
        raise

"""`healthctl nodes`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import click

from healthctl.api_client.remediator_client import RemediatorClient, RequestRefused, server_options
from healthctl.api_client.resource_names import NOT_FOUND, fetch_node, node_path
from healthctl.cli.consent import Consent, consent_options
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.cli.shell_completion import node_names
from healthctl.durations import DurationParam
from healthctl.exit_codes import Failure
from healthctl.pages.node_page import NODES, format_node_state, installed_columns, render_node_page
from healthctl.rendering.blocks import Block, Rows
from remediator.model.rule_conditions import NodeState
from remediator.model.views import CommandText, EventList, HoldRequest, NodeList, NodeView, StatusView, UncordonRequest
from remediator.model.views_actions import BreakerView
from vocabulary.health import Health

HISTORY_MAX = 1000
HOLDS_S, HOLDS_AGAIN_S = 15.0, 0.25  # how long the scheduler may take, and the polling interval
health_option = click.option(
    "--health",
    "healths",
    multiple=True,
    type=click.Choice([h.value for h in Health]),
    help="Filter by state or health. Can be repeated.",
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl nodes --state quarantined; healthctl nodes hold gpu-7 'replacing a fan' --for 2h",
)
def nodes() -> None:
    """Show and manage nodes: state, health, GPUs, findings, operator holds."""


@nodes.command("list", epilog="Example: healthctl nodes list --node 'gpu-1*' --health unhealthy")
@click.option(
    "--node", "globs", multiple=True, metavar="GLOB", help="Filter by name pattern, such as 'gpu-1*'. Can be repeated."
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in NodeState]),
    help="Filter by state or health. Can be repeated.",
)
@health_option
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of rows to show.")
@click.option("--versions", is_flag=True, help="Show installed versions.")
@view_options
@server_options
def list_nodes(
    server: RemediatorClient,
    screen: Screen,
    globs: tuple[str, ...],
    states: tuple[str, ...],
    healths: tuple[str, ...],
    limit: int | None,
    *,
    versions: bool,
) -> None:
    """List nodes by name."""
    filtered = bool(globs or states or healths)
    found = server.get("/v1/nodes", NodeList, **({} if filtered or limit is None else {"limit": limit}))
    kept = [
        node
        for node in found.nodes
        if matches_globs(node.node, globs)
        and node.state in (states or (node.state,))
        and node.health in (healths or (node.health,))
    ]
    shown = NodeList(tuple(kept[:limit]))
    empty = "no matching node" if filtered else "no node has reported yet"
    columns = installed_columns() if versions else NODES
    screen.show(shown, lambda: [Rows(shown.nodes, columns, empty)])


@nodes.command("show", epilog="Example: healthctl nodes show gpu-7 --watch")
@click.argument("name", shell_complete=node_names)
@view_options
@server_options
def show_node(server: RemediatorClient, screen: Screen, name: str) -> None:
    """Show one node in detail."""
    node = fetch_node(server, name, NodeView)
    screen.show(node, lambda: render_node_page(node))


@nodes.command("history", epilog="Example: healthctl nodes history gpu-7 --limit 20")
@click.argument("name", shell_complete=node_names)
@click.option(
    "--limit",
    type=click.IntRange(1, HISTORY_MAX),
    default=50,
    show_default=True,
    help="Maximum number of rows to show.",
)
@view_options
@server_options
def show_node_history(server: RemediatorClient, screen: Screen, name: str, limit: int) -> None:
    """Show the history of node NAME, newest last."""
    from healthctl.pages.event_page import EVENTS

    found = fetch_node(server, name, EventList, f"/history?limit={limit}")
    screen.show(found, lambda: [Rows(found.events[::-1], EVENTS, f"nothing is recorded about {name}")])


@nodes.command("cordon", epilog="Example: healthctl nodes cordon gpu-7 'new power supply'")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@consent_options
@server_options
def cordon_node(server: RemediatorClient, consent: Consent, name: str, why: str) -> None:
    """Cordon node NAME. No new work is placed on it until an operator uncordons it."""
    node = fetch_node(server, name, NodeView)
    if consent.confirm(f"cordon {name}", lambda: fetch_blast_radius(server, node)):
        server.post(f"{node_path(name)}/cordon", CommandText(why))
        _wait_for_holder(server, name, "operator")
        click.echo(f"{name}: cordoned, no new work is placed on it; undo: healthctl nodes uncordon {name}")


@nodes.command("uncordon", epilog="Example: healthctl nodes uncordon gpu-7 'GPU 5 replaced'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@click.option("--force", is_flag=True, help="Proceed even while a reset, reboot or test may be running on the node.")
@consent_options
@server_options
def uncordon_node(server: RemediatorClient, consent: Consent, name: str, why: str, *, force: bool) -> None:
    """Uncordon node NAME. Work is placed on it again, whoever cordoned it; use this also after a repair.

    Closes the node's open incident and puts it on probation without a test. Check it first
    ('healthctl nodes show NAME') and test it ('healthctl preflight run --level standard --tell' on the node).
    """
    node = fetch_node(server, name, NodeView)
    if consent.confirm(f"uncordon {name}", lambda: _fetch_release_preview(server, node)):
        server.post(f"{node_path(name)}/uncordon", UncordonRequest(why, force))
        _wait_for_holder(server, name, "")
        click.echo(f"{name}: uncordoned, work is placed on it again")


@nodes.command("hold", epilog="Example: healthctl nodes hold gpu-7 'replacing a fan' --for 2h")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@click.option(
    "--for", "span", type=DurationParam(), metavar="SPAN", help="Duration, such as 2h or 3d.  [default: until released]"
)
@server_options
def hold_node(server: RemediatorClient, name: str, why: str, span: float | None) -> None:
    """Hold node NAME, so that automation never acts on it. Work is still placed on it; cordon it to stop that."""
    _post_node_action(server, name, "hold", HoldRequest(why, None if span is None else time.time() + span))
    click.echo(f"{name}: held, automation does not act on it; undo: healthctl nodes release {name}")


@nodes.command("release", epilog="Example: healthctl nodes release gpu-7 'fan replaced'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@server_options
def release_node(server: RemediatorClient, name: str, why: str) -> None:
    """Release the hold on node NAME: automation may act on it again.

    Findings that are still active are decided again, within mode and budget. A hold in the scheduler remains, whoever set
    it. Without active findings and without a hold in the scheduler, the incident closes and the node is on probation.
    """
    _post_node_action(server, name, "release", CommandText(why))
    click.echo(f"{name}: operator hold released; now {format_node_state(server.get(node_path(name), NodeView))}")


@nodes.command("retire", epilog="Example: healthctl nodes retire gpu-7 'sold'")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@consent_options
@server_options
def retire_node(server: RemediatorClient, consent: Consent, name: str, why: str) -> None:
    """Retire node NAME: it no longer counts, and automation ignores it."""
    node = fetch_node(server, name, NodeView)
    if consent.confirm(f"retire {name}", lambda: fetch_blast_radius(server, node)):
        server.post(f"{node_path(name)}/retire", CommandText(why))
        click.echo(f"{name}: retired; undo: healthctl nodes unretire {name}")


@nodes.command("unretire", epilog="Example: healthctl nodes unretire gpu-7 'bought back'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@server_options
def unretire_node(server: RemediatorClient, name: str, why: str) -> None:
    """Return retired node NAME to the cluster, on probation. A hold in the scheduler remains."""
    _post_node_action(server, name, "unretire", CommandText(why))
    click.echo(f"{name}: returned to the cluster; now {format_node_state(server.get(node_path(name), NodeView))}")


def matches_globs(name: str, globs: Iterable[str]) -> bool:
    """Whether a name matches one of the patterns, or there is no pattern."""
    patterns = tuple(globs)
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def fetch_blast_radius(server: RemediatorClient, node: NodeView) -> Sequence[Block]:
    """What a change to this node would affect, queried now."""
    from healthctl.pages.blast_radius import render_blast_radius

    return render_blast_radius(node, server.get("/v1/status", StatusView), server.get("/v1/breaker", BreakerView))


def _fetch_release_preview(server: RemediatorClient, node: NodeView) -> Sequence[Block]:
    """What returning the node ends, and what it affects."""
    from healthctl.pages.blast_radius import released_hold_facts

    return [released_hold_facts(node), *fetch_blast_radius(server, node)]


def _wait_for_holder(server: RemediatorClient, name: str, held_by: str) -> None:
    """Wait until the scheduler shows the requested state. The request is already stored and is retried until it succeeds."""
    until = time.monotonic() + HOLDS_S
    while server.get(node_path(name), NodeView).held_by != held_by:
        if time.monotonic() > until:
            todo = f"'healthctl actions list --node {name}' shows the progress"
            raise Failure(f"{name}: stored, but the scheduler does not show it after {HOLDS_S:g} s; {todo}")
        time.sleep(HOLDS_AGAIN_S)


def _post_node_action(server: RemediatorClient, name: str, word: str, message: CommandText | HoldRequest) -> None:
    """Send the request; for a mistyped name suggest similar names."""
    path = node_path(name)
    try:
        server.post(f"{path}/{word}", message)
    except RequestRefused as refused:
        if refused.status == NOT_FOUND:
            fetch_node(server, name, NodeView)
        raise

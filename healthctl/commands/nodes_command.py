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
from remediator.model.views import EventList, HoldWish, NodeList, NodeView, StatusView, UncordonWish, Words
from remediator.model.views_actions import BreakerView
from vocabulary.health import Health

HISTORY_MAX = 1000
HOLDS_S, HOLDS_AGAIN_S = 15.0, 0.25  # how long the scheduler may take, and how often it is looked at
health_option = click.option(
    "--health",
    "healths",
    multiple=True,
    type=click.Choice([h.value for h in Health]),
    help="Only these; may be repeated.",
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl nodes --state quarantined; healthctl nodes hold gpu-7 'a fan is changed' --for 2h",
)
def nodes() -> None:
    """Nodes: state, health, GPUs, findings; what people say of them."""


@nodes.command("list", epilog="Example: healthctl nodes list --node 'gpu-1*' --health unhealthy")
@click.option("--node", "globs", multiple=True, metavar="GLOB", help="Only names like 'gpu-1*'; may be repeated.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in NodeState]),
    help="Only these; may be repeated.",
)
@health_option
@click.option("--limit", type=click.IntRange(min=1), help="So many at most.")
@click.option("--versions", is_flag=True, help="What is installed on each.")
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
    """Show nodes, by name."""
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
    empty = "no node fits" if filtered else "no node has reported yet"
    columns = installed_columns() if versions else NODES
    screen.show(shown, lambda: [Rows(shown.nodes, columns, empty)])


@nodes.command("show", epilog="Example: healthctl nodes show gpu-7 --watch")
@click.argument("name", shell_complete=node_names)
@view_options
@server_options
def show_node(server: RemediatorClient, screen: Screen, name: str) -> None:
    """Show one node whole."""
    node = fetch_node(server, name, NodeView)
    screen.show(node, lambda: render_node_page(node))


@nodes.command("history", epilog="Example: healthctl nodes history gpu-7 --limit 20")
@click.argument("name", shell_complete=node_names)
@click.option("--limit", type=click.IntRange(1, HISTORY_MAX), default=50, show_default=True, help="So many at most.")
@view_options
@server_options
def show_node_history(server: RemediatorClient, screen: Screen, name: str, limit: int) -> None:
    """Show what happened to node NAME, the newest last."""
    from healthctl.pages.event_page import EVENTS

    found = fetch_node(server, name, EventList, f"/history?limit={limit}")
    screen.show(found, lambda: [Rows(found.events[::-1], EVENTS, f"nothing is recorded about {name}")])


@nodes.command("cordon", epilog="Example: healthctl nodes cordon gpu-7 'new power supply'")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@consent_options
@server_options
def cordon_node(server: RemediatorClient, consent: Consent, name: str, why: str) -> None:
    """Take node NAME out of service in your name: no new work. It stays so until a person lifts it."""
    node = fetch_node(server, name, NodeView)
    if consent.given(f"cordon {name}", lambda: fetch_blast_radius(server, node)):
        server.post(f"{node_path(name)}/cordon", Words(why))
        _wait_for_holder(server, name, "operator")
        click.echo(f"{name}: no new work comes to it; 'healthctl nodes uncordon {name}' ends that")


@nodes.command("uncordon", epilog="Example: healthctl nodes uncordon gpu-7 'GPU 5 replaced'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@click.option("--force", is_flag=True, help="Also while a reset, a reboot or a test may run on it.")
@consent_options
@server_options
def uncordon_node(server: RemediatorClient, consent: Consent, name: str, why: str, *, force: bool) -> None:
    """Let work come to node NAME again. Whoever kept it away; also when its new part is in.

    This is your word against what was known of it: its open incident ends, and it is on probation, untested. Look first
    ('healthctl nodes show NAME') and test it ('healthctl preflight run --level standard --tell' there).
    """
    node = fetch_node(server, name, NodeView)
    if consent.given(f"uncordon {name}", lambda: _fetch_release_preview(server, node)):
        server.post(f"{node_path(name)}/uncordon", UncordonWish(why, force))
        _wait_for_holder(server, name, "")
        click.echo(f"{name}: work may come to it again")


@nodes.command("hold", epilog="Example: healthctl nodes hold gpu-7 'a fan is changed' --for 2h")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@click.option(
    "--for", "span", type=DurationParam(), metavar="SPAN", help="Only for 2h, 3d, …  [default: until it is released]"
)
@server_options
def hold_node(server: RemediatorClient, name: str, why: str, span: float | None) -> None:
    """Keep automation off node NAME, at once. Work still comes to it: cordon it if that should end too."""
    _post_node_action(server, name, "hold", HoldWish(why, None if span is None else time.time() + span))
    click.echo(f"{name}: nothing is done with it; 'healthctl nodes release {name}' ends that")


@nodes.command("release", epilog="Example: healthctl nodes release gpu-7 'the fan is in'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@server_options
def release_node(server: RemediatorClient, name: str, why: str) -> None:
    """End the hold on node NAME. It may be looked at again, which is not to say that it is well.

    What is still asserted of it is decided upon anew, within mode and budget. A hold in the scheduler stays, ours or another's.
    If nothing is asserted and nobody holds it there, its incident ends, and it is on probation.
    """
    _post_node_action(server, name, "release", Words(why))
    click.echo(f"{name}: not held by word any more; now {format_node_state(server.get(node_path(name), NodeView))}")


@nodes.command("retire", epilog="Example: healthctl nodes retire gpu-7 'sold'")
@click.argument("name", shell_complete=node_names)
@click.argument("why")
@consent_options
@server_options
def retire_node(server: RemediatorClient, consent: Consent, name: str, why: str) -> None:
    """Take node NAME out of the cluster for good. It counts nowhere, and nothing is done with it."""
    node = fetch_node(server, name, NodeView)
    if consent.given(f"retire {name}", lambda: fetch_blast_radius(server, node)):
        server.post(f"{node_path(name)}/retire", Words(why))
        click.echo(f"{name}: retired; 'healthctl nodes unretire {name}' takes it back")


@nodes.command("unretire", epilog="Example: healthctl nodes unretire gpu-7 'bought back'")
@click.argument("name", shell_complete=node_names)
@click.argument("why", required=False, default="")
@server_options
def unretire_node(server: RemediatorClient, name: str, why: str) -> None:
    """Take node NAME back, on probation. A hold in the scheduler stays."""
    _post_node_action(server, name, "unretire", Words(why))
    click.echo(f"{name}: part of the cluster again; now {format_node_state(server.get(node_path(name), NodeView))}")


def matches_globs(name: str, globs: Iterable[str]) -> bool:
    """Whether a name is like one of the patterns, or there is none."""
    patterns = tuple(globs)
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def fetch_blast_radius(server: RemediatorClient, node: NodeView) -> Sequence[Block]:
    """What would be touched on this node, asked now."""
    from healthctl.pages.blast_radius import render_blast_radius

    return render_blast_radius(node, server.get("/v1/status", StatusView), server.get("/v1/breaker", BreakerView))


def _fetch_release_preview(server: RemediatorClient, node: NodeView) -> Sequence[Block]:
    """What giving the node back ends, and what it would touch."""
    from healthctl.pages.blast_radius import released_hold_facts

    return [released_hold_facts(node), *fetch_blast_radius(server, node)]


def _wait_for_holder(server: RemediatorClient, name: str, held_by: str) -> None:
    """Wait until the scheduler shows what was wished; it is written down already, and is asked for until it holds."""
    until = time.monotonic() + HOLDS_S
    while server.get(node_path(name), NodeView).held_by != held_by:
        if time.monotonic() > until:
            todo = f"'healthctl actions list --node {name}' tells how far it is"
            raise Failure(f"{name}: it is written down, and the scheduler does not show it after {HOLDS_S:g} s; {todo}")
        time.sleep(HOLDS_AGAIN_S)


def _post_node_action(server: RemediatorClient, name: str, word: str, message: Words | HoldWish) -> None:
    """Tell the centre; who mistyped the name is told the nearest."""
    path = node_path(name)
    try:
        server.post(f"{path}/{word}", message)
    except RequestRefused as refused:
        if refused.status == NOT_FOUND:
            fetch_node(server, name, NodeView)
        raise

"""`healthctl nodes`."""

from __future__ import annotations

import time
from urllib.parse import quote

import click

from healthctl.duration import Duration
from healthctl.exits import Exit, Failure
from healthctl.listing import ListsByDefault
from healthctl.output import facts, json_text, moment, output_option, table
from healthctl.server import Server, server_options
from remediator.model.views import HoldWish, NodeList, NodeView, Words
from vocabulary.finding import Finding
from vocabulary.identity import require_node_name
from vocabulary.wire import Versions


@click.group(cls=ListsByDefault)
def nodes() -> None:
    """Nodes: state, health, GPUs, findings."""


@nodes.command("list")
@click.option("--versions", is_flag=True, help="What is installed on each.")
@output_option
@server_options
def list_nodes(server: Server, output: str, *, versions: bool) -> None:
    """Show all nodes, by name."""
    found = server.get("/v1/nodes", NodeList)
    if output == "json":
        click.echo(json_text(found))
        return
    if versions:
        click.echo(_versions_table(found.nodes))
        return
    header = ("NODE", "STATE", "HEALTH", "SINCE", "HELD BY", "JOBS", "WHY")
    rows = [
        (n.node, n.state, n.health, moment(n.since), n.held_by or "-", ",".join(n.jobs) or "-", n.why)
        for n in found.nodes
    ]
    click.echo(table(header, rows) if rows else "no node has reported yet")


@nodes.command()
@click.argument("name")
@output_option
@server_options
def show(server: Server, name: str, output: str) -> None:
    """Show one node whole."""
    node = server.get(_path(name), NodeView)
    click.echo(json_text(node) if output == "json" else _page(node))


@nodes.command()
@click.argument("name")
@click.argument("why")
@click.option(
    "--for", "span", type=Duration(), metavar="SPAN", help="Only for 2h, 3d, …  [default: until it is released]"
)
@server_options
def hold(server: Server, name: str, why: str, span: float | None) -> None:
    """Keep automation off node NAME. Work still comes to it: drain it in the scheduler if that should end too."""
    server.post(f"{_path(name)}/hold", HoldWish(why, None if span is None else time.time() + span))
    click.echo(f"{name}: nothing is done with it")


@nodes.command()
@click.argument("name")
@click.argument("why", required=False, default="")
@server_options
def release(server: Server, name: str, why: str) -> None:
    """End the hold on node NAME."""
    server.post(f"{_path(name)}/release", Words(why))
    click.echo(f"{name}: not held by word any more; now {standing(server.get(_path(name), NodeView))}")


@nodes.command()
@click.argument("name")
@click.argument("why")
@server_options
def retire(server: Server, name: str, why: str) -> None:
    """Say that node NAME is no part of the cluster any more: it counts nowhere, and nothing is done with it."""
    server.post(f"{_path(name)}/retire", Words(why))
    click.echo(f"{name}: retired")


@nodes.command()
@click.argument("name")
@click.argument("why", required=False, default="")
@server_options
def unretire(server: Server, name: str, why: str) -> None:
    """Take node NAME back, on probation; a hold in the scheduler stays."""
    server.post(f"{_path(name)}/unretire", Words(why))
    click.echo(f"{name}: part of the cluster again; now {standing(server.get(_path(name), NodeView))}")


_STANDING = {
    "us": "our own hold still keeps work away: resume it in the scheduler (local: take it out of the state file)",
    "operator": "held in the scheduler by an operator",
    "scheduler": "held in the scheduler by itself",
    "?": "the scheduler cannot be asked whether anybody holds it",
}


def standing(node: NodeView) -> str:
    """What a node is now and what still holds it, after a person's word: no word lifts a hold in the scheduler."""
    held = f"; {_STANDING.get(node.held_by, f'held by {node.held_by}')}" if node.held_by else ""
    return f"{node.state}{held}"


def _path(name: str) -> str:
    try:
        return f"/v1/nodes/{quote(require_node_name(name), safe='')}"
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None


def _versions(versions: Versions) -> list[tuple[str, str]]:
    return [
        ("healthd", versions.healthd),
        ("driver", versions.driver),
        ("kernel", versions.kernel),
        ("image", versions.image),
        ("BIOS", versions.bios),
        ("VBIOS", ", ".join(versions.vbios)),
        ("firmware", ", ".join(versions.firmware)),
    ]


def _versions_table(nodes: tuple[NodeView, ...]) -> str:
    header = ("NODE", *(name.upper() for name, _ in _versions(Versions())))
    rows = [(node.node, *(text or "-" for _, text in _versions(node.versions))) for node in nodes]
    return table(header, rows) if rows else "no node has reported yet"


def _hands_off(node: NodeView) -> str:
    held = node.hands_off
    if held is None:
        return ""
    until = "" if held.until is None else f", until {moment(held.until)}"
    return f"{held.actor}: {held.why}{until}"


def _page(node: NodeView) -> str:
    parts = [
        facts(
            [
                ("node", node.node),
                ("state", f"{node.state} since {moment(node.since)}"),
                ("why", node.why),
                ("health", f"{node.health}, last heard {moment(node.last_seen)}"),
                ("incident", node.incident),
                ("held by", node.held_by),
                ("hands off", _hands_off(node)),
                ("jobs", ", ".join(node.jobs)),
                *_versions(node.versions),
            ]
        )
    ]
    if node.gpus:
        rows = [(str(g.index), g.pci, g.uuid, g.name or "-", g.serial or "-") for g in node.gpus]
        parts.append(table(("GPU", "PCI", "UUID", "NAME", "SERIAL"), rows))
    if node.ranks:
        ranks = [
            (r.job, f"{r.rank}/{r.world}", str(r.attempt), str(r.pid), str(r.step), r.phase, "yes" if r.alive else "no")
            for r in node.ranks
        ]
        parts.append(table(("JOB", "RANK", "ATTEMPT", "PID", "STEP", "PHASE", "ALIVE"), ranks))
    if node.findings:
        parts.append(findings_table(node.findings))
    return "\n\n".join(parts)


def findings_table(findings: tuple[Finding, ...]) -> str:
    """Findings as people read them; a test fault is named as one."""
    rows = [
        (
            f.kind,
            f.severity.value if f.active else f"cleared ({f.severity.value})",
            str(f.component),
            moment(f.last_seen),
            str(f.count),
            f"[injected] {f.summary}" if f.injected else f.summary,
        )
        for f in findings
    ]
    return table(("FINDING", "SEVERITY", "COMPONENT", "LAST SEEN", "COUNT", "SUMMARY"), rows)

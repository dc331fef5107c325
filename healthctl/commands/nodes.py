"""`healthctl nodes`."""

from __future__ import annotations

from urllib.parse import quote

import click

from healthctl.exits import Exit, Failure
from healthctl.listing import ListsByDefault
from healthctl.output import facts, json_text, moment, output_option, table
from healthctl.server import Server, server_options
from remediator.model.views import NodeList, NodeView
from vocabulary.finding import Finding
from vocabulary.identity import require_node_name


@click.group(cls=ListsByDefault)
def nodes() -> None:
    """Nodes: state, health, GPUs, findings."""


@nodes.command("list")
@output_option
@server_options
def list_nodes(server: Server, output: str) -> None:
    """Show all nodes, by name."""
    found = server.get("/v1/nodes", NodeList)
    if output == "json":
        click.echo(json_text(found))
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
    try:
        path = f"/v1/nodes/{quote(require_node_name(name), safe='')}"
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    node = server.get(path, NodeView)
    click.echo(json_text(node) if output == "json" else _page(node))


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
                ("jobs", ", ".join(node.jobs)),
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

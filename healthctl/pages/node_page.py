"""Renders nodes with their GPUs, ranks and findings. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.rendering.blocks import (
    Block,
    Column,
    Facts,
    Rows,
    Value,
    escape_control_chars,
    format_timestamp,
    state_cell,
)
from remediator.model.views import NodeView
from vocabulary.finding import Finding
from vocabulary.messages.wire import Gpu, RankStatus, Versions

NODES: Sequence[Column[NodeView]] = (
    Column("NODE", lambda n: n.node),
    Column("STATE", lambda n: state_cell(n.state)),
    Column("HEALTH", lambda n: state_cell(n.health)),
    Column("SINCE", lambda n: format_timestamp(n.since)),
    Column("CORDONED BY", lambda n: n.held_by),
    Column("JOBS", lambda n: ",".join(n.jobs), wide=True),
    Column("INCIDENT", lambda n: n.incident, wide=True),
    Column("LAST REPORT", lambda n: format_timestamp(n.last_seen), wide=True),
    Column("WHY", lambda n: n.why, prose=True),
)
GPUS: Sequence[Column[Gpu]] = (
    Column("GPU", lambda g: str(g.index)),
    Column("PCI", lambda g: g.pci),
    Column("UUID", lambda g: g.uuid),
    Column("NAME", lambda g: g.name),
    Column("SERIAL", lambda g: g.serial),
)
RANKS: Sequence[Column[RankStatus]] = (
    Column("JOB", lambda r: r.job),
    Column("RANK", lambda r: f"{r.rank}/{r.world}"),
    Column("ATTEMPT", lambda r: str(r.attempt)),
    Column("PID", lambda r: str(r.pid)),
    Column("STEP", lambda r: str(r.step)),
    Column("PHASE", lambda r: r.phase),
    Column("ALIVE", lambda r: "yes" if r.alive else "no"),
)
FINDINGS: Sequence[Column[Finding]] = (
    Column("FINDING", lambda f: f.kind),
    Column("SEVERITY", lambda f: state_cell(f.severity.value) if f.active else f"cleared ({f.severity.value})"),
    Column("COMPONENT", lambda f: str(f.component)),
    Column("LAST SEEN", lambda f: format_timestamp(f.last_seen)),
    Column("COUNT", lambda f: str(f.count)),
    Column("SUMMARY", lambda f: f"[injected] {f.summary}" if f.injected else f.summary, prose=True),
)
_HOLDER_TEXTS = {
    "us": "still cordoned by automation; to lift: healthctl nodes uncordon",
    "operator": "cordoned by an operator",
    "scheduler": "cordoned by the scheduler",
    "?": "the scheduler does not report whether the node is cordoned",
}


def installed_columns() -> list[Column[NodeView]]:
    """Columns with the versions installed on each node."""

    def column(number: int, name: str) -> Column[NodeView]:
        return Column(name.upper(), lambda n: list_installed_versions(n.versions)[number][1])

    names = [name for name, _ in list_installed_versions(Versions())]
    return [NODES[0], *(column(number, name) for number, name in enumerate(names))]


def list_installed_versions(versions: Versions) -> list[tuple[str, str]]:
    """The installed versions by name."""
    return [
        ("healthd", versions.healthd),
        ("driver", versions.driver),
        ("kernel", versions.kernel),
        ("image", versions.image),
        ("BIOS", versions.bios),
        ("VBIOS", ", ".join(versions.vbios)),
        ("firmware", ", ".join(versions.firmware)),
    ]


def format_node_state(node: NodeView) -> str:
    """A node's state and who still cordons it, after an operator's command; control characters are escaped."""
    held = f"; {_HOLDER_TEXTS.get(node.held_by, f'held by {node.held_by}')}" if node.held_by else ""
    return escape_control_chars(f"{node.state}{held}")


def node_state_facts(node: NodeView) -> list[tuple[str, Value]]:
    """A node's state, health, holds and jobs."""
    return [
        ("node", node.node),
        ("state", state_cell(node.state)),
        ("since", format_timestamp(node.since)),
        ("why", node.why),
        ("health", state_cell(node.health)),
        ("last report", format_timestamp(node.last_seen)),
        ("incident", node.incident),
        ("cordoned by", node.held_by),
        ("taken over by", _format_hold(node)),
        ("jobs", ", ".join(node.jobs)),
    ]


def render_node_page(node: NodeView) -> Iterator[Block]:
    """Render one node with all its parts."""
    yield Facts([*node_state_facts(node), *list_installed_versions(node.versions)])
    for rows in (Rows(node.gpus, GPUS), Rows(node.ranks, RANKS), Rows(node.findings, FINDINGS)):
        if rows.items:
            yield rows


def _format_hold(node: NodeView) -> str:
    held = node.hands_off
    if held is None:
        return ""
    until = "" if held.until is None else f", until {format_timestamp(held.until)}"
    return f"{held.actor}: {held.why}{until}"

"""The impact of taking a node from its jobs or returning it: its jobs, isolated nodes and the remaining budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from healthctl.pages.node_page import FINDINGS, node_state_facts
from healthctl.rendering.blocks import Block, Cell, Facts, Rows, Tone, Value
from remediator.model.views import NodeView, StatusView
from remediator.model.views_actions import BreakerView
from vocabulary.messages.wire import RankStatus


def render_blast_radius(node: NodeView, status: StatusView, breaker: BreakerView) -> Sequence[Block]:
    """Render the impact for an operator who is about to confirm."""
    jobs: list[tuple[str, Value]] = [("running", text) for text in list_node_jobs(node)]
    active = [finding for finding in node.findings if finding.active]
    blocks: list[Block] = [
        Facts([*node_state_facts(node)[:-1], *(jobs or [("running", "no known job")])]),
        *([Rows(active, FINDINGS)] if active else []),
        cluster_facts(status, breaker),
    ]
    return blocks


def released_hold_facts(node: NodeView) -> Facts:
    """What an uncordon ends; empty if the node is not cordoned."""
    if not node.held_by:
        return Facts([])
    active = ", ".join(
        sorted({f"{finding.kind} ({finding.severity.value})" for finding in node.findings if finding.active})
    )
    return Facts(
        [
            ("then", Cell("the scheduler places work at once; no preflight runs first", Tone.WARN)),
            (
                "closes",
                f"its incident {node.incident}; automation no longer decides on it" if node.incident else "",
            ),
            ("active findings", Cell(active, Tone.BAD) if active else ""),
        ]
    )


def list_node_jobs(node: NodeView) -> list[str]:
    """Each job with its ranks on the node; only the name of a job whose ranks do not report."""
    reported: dict[str, list[RankStatus]] = {}
    for rank in node.ranks:
        if rank.alive:
            reported.setdefault(rank.job, []).append(rank)
    texts = [
        f"{job}: {'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(r.rank for r in ranks)} of {ranks[0].world}, step {max(r.step for r in ranks)}"
        for job, ranks in reported.items()
    ]
    return texts + [f"{job}: ranks not reporting" for job in node.jobs if job not in reported]


def cluster_facts(status: StatusView, breaker: BreakerView) -> Facts:
    """The number of isolated nodes and the remaining budget."""
    left = max(0, status.isolated_max - status.isolated)
    tone = Tone.GOOD if left > 1 else Tone.WARN
    return Facts(
        [
            (
                "cluster",
                f"{status.nodes_total} node{'' if status.nodes_total == 1 else 's'}, {status.isolated} isolated, at most {status.isolated_max}",
            ),
            ("budget left", Cell(f"automation may isolate {left} more", tone)),
            ("breaker", Cell(f"open: {breaker.why}", Tone.BAD) if breaker.open else "closed"),
            *(("limit", limit) for limit in breaker.limits),
        ]
    )


def format_ranges(numbers: Iterable[int]) -> str:
    """Format numbers in order, consecutive ones as ranges.

    >>> format_ranges([3, 1, 2, 7])
    '1-3, 7'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in found)

"""What taking a node from jobs, or returning it, would affect: its jobs, the number of nodes out, the remaining budget."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from healthctl.pages.node_page import FINDINGS, node_state_facts
from healthctl.rendering.blocks import Block, Cell, Facts, Rows, Tone, Value
from remediator.model.views import NodeView, StatusView
from remediator.model.views_actions import BreakerView
from vocabulary.messages.wire import RankStatus


def render_blast_radius(node: NodeView, status: StatusView, breaker: BreakerView) -> Sequence[Block]:
    """Everything an operator needs to decide."""
    jobs: list[tuple[str, Value]] = [("runs there", text) for text in list_node_jobs(node)]
    asserted = [finding for finding in node.findings if finding.active]
    blocks: list[Block] = [
        Facts([*node_state_facts(node)[:-1], *(jobs or [("runs there", "no known job")])]),
        *([Rows(asserted, FINDINGS)] if asserted else []),
        cluster_facts(status, breaker),
    ]
    return blocks


def released_hold_facts(node: NodeView) -> Facts:
    """What an operator's uncordon ends. Empty if nobody holds the node."""
    if not node.held_by:
        return Facts([])
    asserted = sorted({f"{finding.kind} ({finding.severity.value})" for finding in node.findings if finding.active})
    against = ", ".join(asserted)
    return Facts(
        [
            ("then", Cell("work is placed on it at once, without a test", Tone.WARN)),
            ("ends", f"its incident {node.incident}, which is not decided again" if node.incident else ""),
            ("still active", Cell(against, Tone.BAD) if against else ""),
        ]
    )


def list_node_jobs(node: NodeView) -> list[str]:
    """Each job with its ranks on the node; only its name if its ranks do not report."""
    told: dict[str, list[RankStatus]] = {}
    for rank in node.ranks:
        if rank.alive:
            told.setdefault(rank.job, []).append(rank)
    texts = [
        f"{job}: {'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(r.rank for r in ranks)} of {ranks[0].world}, step {max(r.step for r in ranks)}"
        for job, ranks in told.items()
    ]
    return texts + [f"{job}: its ranks do not report" for job in node.jobs if job not in told]


def cluster_facts(status: StatusView, breaker: BreakerView) -> Facts:
    """How many nodes are out, and the remaining budget."""
    left = max(0, status.isolated_max - status.isolated)
    tone = Tone.GOOD if left > 1 else Tone.WARN
    return Facts(
        [
            (
                "cluster",
                f"{status.nodes_total} node{'' if status.nodes_total == 1 else 's'}, {status.isolated} out, at most {status.isolated_max}",
            ),
            ("left", Cell(f"{left} more may be isolated by automation", tone)),
            ("breaker", Cell(f"open: {breaker.why}", Tone.BAD) if breaker.open else "closed"),
            *(("limit", limit) for limit in breaker.limits),
        ]
    )


def format_ranges(numbers: Iterable[int]) -> str:
    """Sorted numbers, with consecutive ones joined.

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

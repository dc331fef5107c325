"""What it would touch if a node were taken from jobs, or given to them: who runs there, how many are out, what the budget leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from healthctl.pages.node_page import FINDINGS, node_state_facts
from healthctl.rendering.blocks import Block, Cell, Facts, Rows, Tone, Value
from remediator.model.views import NodeView, StatusView
from remediator.model.views_actions import BreakerView
from vocabulary.messages.wire import RankStatus


def render_blast_radius(node: NodeView, status: StatusView, breaker: BreakerView) -> Sequence[Block]:
    """Everything to know before saying yes."""
    jobs: list[tuple[str, Value]] = [("runs there", text) for text in list_node_jobs(node)]
    asserted = [finding for finding in node.findings if finding.active]
    blocks: list[Block] = [
        Facts([*node_state_facts(node)[:-1], *(jobs or [("runs there", "no job that we know of")])]),
        *([Rows(asserted, FINDINGS)] if asserted else []),
        cluster_facts(status, breaker),
    ]
    return blocks


def released_hold_facts(node: NodeView) -> Facts:
    """What a person's word that the node is well again ends. Nothing where nobody holds it."""
    if not node.held_by:
        return Facts([])
    asserted = sorted({f"{finding.kind} ({finding.severity.value})" for finding in node.findings if finding.active})
    against = ", ".join(asserted)
    return Facts(
        [
            ("then", Cell("work comes to it at once, and no test is run before", Tone.WARN)),
            ("ends", f"its incident {node.incident}, which is not decided upon any more" if node.incident else ""),
            ("still asserted", Cell(against, Tone.BAD) if against else ""),
        ]
    )


def list_node_jobs(node: NodeView) -> list[str]:
    """Each job with its ranks on the node; a job whose ranks do not tell, by its name."""
    told: dict[str, list[RankStatus]] = {}
    for rank in node.ranks:
        if rank.alive:
            told.setdefault(rank.job, []).append(rank)
    texts = [
        f"{job}: {'rank' if len(ranks) == 1 else 'ranks'} {format_ranges(r.rank for r in ranks)} of {ranks[0].world}, step {max(r.step for r in ranks)}"
        for job, ranks in told.items()
    ]
    return texts + [f"{job}: its ranks do not tell" for job in node.jobs if job not in told]


def cluster_facts(status: StatusView, breaker: BreakerView) -> Facts:
    """How many nodes are out, and what the budget leaves."""
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
    """Numbers in order, neighbours joined.

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

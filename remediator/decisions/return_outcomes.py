"""Tracks nodes returned to service: whether they failed again, and how soon."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from remediator.model.journal_records import NodeRecord, NodeReturn
from remediator.model.rule_conditions import DAY_S

WINDOWS = {"1d": DAY_S, "28d": 28 * DAY_S}
KEPT_S = 2 * WINDOWS["28d"]  # a return counts for a window once the window has passed
KEPT_MAX = 20


def record_node_return(node: NodeRecord, now: float) -> NodeRecord:
    """Record that the node returned to service now."""
    kept = [each for each in node.returns if now - each.at < KEPT_S][-(KEPT_MAX - 1) :]
    return replace(node, returns=(*kept, NodeReturn(now)))


def record_repeat_failure(node: NodeRecord, now: float) -> NodeRecord:
    """Record that a rule asks to isolate the node. Only the first time after a return counts."""
    if not node.returns or node.returns[-1].failed_at is not None:
        return node
    return replace(node, returns=(*node.returns[:-1], replace(node.returns[-1], failed_at=now)))


def count_repeat_failures(nodes: Iterable[NodeRecord], within_s: float, now: float) -> tuple[int, int]:
    """Count the returns that failed again within so many seconds, and all returns observed for that long."""
    failed = total = 0
    for each in (each for node in nodes for each in node.returns):
        if within_s <= now - each.at < KEPT_S:
            total += 1
            failed += each.failed_at is not None and each.failed_at - each.at <= within_s
    return failed, total

"""What blocks an isolation besides the budget: the breaker, and common causes."""

from __future__ import annotations

from remediator.decisions.rule_guards import GuardAnswer
from remediator.model.journal_records import BREAKER, EXPLAINING, SLOW_CAUSE, NodeRecord
from remediator.state.cluster_state import ClusterState


def isolation_blocker_guards(state: ClusterState, node: NodeRecord) -> tuple[GuardAnswer, ...]:
    """Return the answers of the breaker, and of every open common-cause or silence incident with this node.

    A slow cause blocks nothing by itself, and its answer says so. A job's own fault is no reason to keep a broken node.
    """
    breaker = state.incident_of(BREAKER)
    first = GuardAnswer(
        "breaker", breaker is None, "closed" if breaker is None else f"open: {breaker.id}, {breaker.title}"
    )
    shared = [i for i in state.wide_of(node.node) if i.rule in EXPLAINING]
    return (first, *(GuardAnswer(i.rule, i.rule == SLOW_CAUSE, f"{i.id}: {i.title}") for i in shared))

"""Spare nodes: healthy, in service according to the scheduler, and idle."""

from __future__ import annotations

from math import exp, inf, log, log1p

import msgspec

from remediator.model.rule_conditions import NodeState
from remediator.state.cluster_state import ClusterState

_NEAR = ("switch", "rack")
DAY_S = 86_400.0


class SparesWanted(msgspec.Struct, frozen=True):
    """How many nodes are out of `nodes` on average, and a number that is rarely exceeded."""

    nodes: int
    out_on_average: float
    quantile: float
    spares: int


def spares_wanted(nodes: int, failures_per_1000_node_days: float, repair_s: float, quantile: float) -> SparesWanted:
    """Return the least number of spares that is insufficient at most `1 - quantile` of the time.

    Nodes fail independently, each out for the share of time that its failures and repairs take: a binomial. Nodes that
    fail together for one cause need more.
    """
    load = failures_per_1000_node_days / 1000 * repair_s / DAY_S
    out = load / (1 + load)
    log_odds = log(out) - log1p(-out) if out > 0 else -inf
    log_term, reached, spares = nodes * log1p(-out), 0.0, 0
    while True:
        reached += exp(log_term)
        if reached >= quantile or spares == nodes:
            return SparesWanted(nodes, nodes * out, quantile, spares)
        log_term += log((nodes - spares) / (spares + 1)) + log_odds
        spares += 1


def count_other_free_nodes(state: ClusterState, node: str) -> int:
    """Return the number of other free nodes, minus those that nodes being isolated will take."""
    leaving = sum(1 for other in state.nodes_in(NodeState.DRAINING) if other.node != node)
    free = state.index.free
    return len(free) - (node in free) - leaving


class SpareNode(msgspec.Struct, frozen=True):
    """A free node and the nearest location it shares with the node it replaces; empty if unknown."""

    node: str
    near: str = ""

    def __str__(self) -> str:
        return f"{self.node} (same {self.near})" if self.near else self.node


def find_nearest_spare(state: ClusterState, node: str) -> SpareNode | None:
    """Return the best free replacement for `node`: at the same switch, in the same rack, then any; by name."""
    here, free = state.nodes[node].places, state.index.free
    for kind in _NEAR:
        for name in here.of(kind):
            near = (state.index.members(f"{kind}:{name}") & free) - {node}
            if near:
                return SpareNode(min(near), kind)
    other = state.index.first_free(besides=node)
    return SpareNode(other) if other is not None else None


def describe_spare_proposal(state: ClusterState, node: str) -> str:
    """Describe the proposed spare for operators."""
    spare = find_nearest_spare(state, node)
    return f"spare: {spare}" if spare is not None else "no spare is free"

"""Which nodes could take over: healthy, in service by the scheduler's word too, and without work."""

from __future__ import annotations

from remediator.model.places import Places
from remediator.model.rules import NodeState
from remediator.state import ClusterState

_NEAR = ("switch", "rack")


def free_besides(state: ClusterState, node: str) -> int:
    """How many other nodes are free, less those that nodes on their way out will take."""
    leaving = sum(1 for other in state.nodes_in(NodeState.DRAINING) if other.node != node)
    free = state.index.free
    return len(free) - (node in free) - leaving


def nearest(state: ClusterState, node: str, count: int) -> list[str]:
    """Free nodes that could take the place of `node`, the nearest first: same switch, same rack, then by name."""
    here = state.nodes[node].places if node in state.nodes else Places()
    others = [other for other in state.index.free if other != node]
    return sorted(others, key=lambda other: (*_distance(here, state.nodes[other].places), other))[:count]


def _distance(a: Places, b: Places) -> tuple[bool, ...]:
    return tuple(not a.of(kind) or a.of(kind) != b.of(kind) for kind in _NEAR)

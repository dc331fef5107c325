"""Sets of node names that decisions use often: held nodes, free nodes, nodes of a location."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Set as AbstractSet

from remediator.model.journal_records import NodeRecord
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import SchedulerNodeState


def is_in_cluster(node: NodeRecord) -> bool:
    """Return whether a node counts in limits that are shares of the cluster: retired machines do not."""
    return node.state is not NodeState.RETIRED


class NodeIndex:
    """Follows the node records and the scheduler's answers; holds no other data."""

    def __init__(self) -> None:
        self._in_cluster: set[str] = set()
        self._held: set[str] = set()
        self._free: set[str] = set()
        self._by_name: list[str] = []  # free nodes, sorted: a thousand simultaneous faults ask for the first of them
        self._in_state: dict[NodeState, set[str]] = {}
        self._members: dict[str, set[str]] = {}

    def put(self, before: NodeRecord | None, node: NodeRecord, hold: SchedulerNodeState | None) -> None:
        """Update the index after a node's record changed."""
        if before is not None:
            self._in_state[before.state].discard(node.node)
        self._in_state.setdefault(node.state, set()).add(node.node)
        (self._held.add if node.held else self._held.discard)(node.node)
        self.weigh(node, hold)
        there, was_there = is_in_cluster(node), before is not None and is_in_cluster(before)
        if before is None or before.places != node.places or there != was_there:
            (self._in_cluster.add if there else self._in_cluster.discard)(node.node)
            for place in before.places.keys if before is not None and was_there else ():
                self._members[place].discard(node.node)
            for place in node.places.keys if there else ():
                self._members.setdefault(place, set()).add(node.node)

    def weigh(self, node: NodeRecord, hold: SchedulerNodeState | None) -> None:
        """Update whether a node is free, by its record and the scheduler's answer; without an answer it is not."""
        in_service = hold is not None and hold.schedulable is True and not (hold.jobs or hold.set_aside)
        free = node.state is NodeState.HEALTHY and not node.held and not node.jobs and in_service
        if free and node.node not in self._free:
            self._free.add(node.node)
            insort(self._by_name, node.node)
        elif not free and node.node in self._free:
            self._free.discard(node.node)
            del self._by_name[bisect_left(self._by_name, node.node)]

    @property
    def in_cluster(self) -> AbstractSet[str]:
        """Return all but retired nodes: the base of every limit and share."""
        return self._in_cluster

    @property
    def held(self) -> AbstractSet[str]:
        """Return the nodes that we hold out of service."""
        return self._held

    @property
    def free(self) -> AbstractSet[str]:
        """Return the nodes that are healthy, in service and idle."""
        return self._free

    def first_free(self, besides: str) -> str | None:
        """Return the first free node by name other than `besides`."""
        return next((name for name in self._by_name if name != besides), None)

    def members(self, place: str) -> AbstractSet[str]:
        """Return the cluster's nodes at a location such as ``rack:r12``."""
        return self._members.get(place, frozenset())

    def in_state(self, state: NodeState) -> AbstractSet[str]:
        """Return the nodes in a lifecycle state."""
        return self._in_state.get(state, frozenset())

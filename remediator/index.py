"""Sets of node names that decisions ask for again and again: who is held, who is free, who shares a place."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from remediator.model.hold import NodeHold
from remediator.model.records import NodeRecord
from remediator.model.rules import NodeState


class NodeIndex:
    """Follows the node records; knows nothing that they and the scheduler do not say."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._free: set[str] = set()
        self._in_state: dict[NodeState, set[str]] = {}
        self._members: dict[str, set[str]] = {}

    def put(self, before: NodeRecord | None, node: NodeRecord, hold: NodeHold | None) -> None:
        """A node's record is another now."""
        if before is not None:
            self._in_state[before.state].discard(node.node)
        self._in_state.setdefault(node.state, set()).add(node.node)
        (self._held.add if node.held else self._held.discard)(node.node)
        self.weigh(node, hold)
        if before is None or before.places != node.places:
            for place in before.places.keys if before is not None else ():
                self._members[place].discard(node.node)
            for place in node.places.keys:
                self._members.setdefault(place, set()).add(node.node)

    def weigh(self, node: NodeRecord, hold: NodeHold | None) -> None:
        """Is it free, by its record and by what the scheduler says of it?"""
        in_service = hold is None or (hold.schedulable is True and not hold.jobs)
        free = node.state is NodeState.HEALTHY and not node.held and not node.jobs and in_service
        (self._free.add if free else self._free.discard)(node.node)

    @property
    def held(self) -> AbstractSet[str]:
        """Those that we hold out of service."""
        return self._held

    @property
    def free(self) -> AbstractSet[str]:
        """Those that are healthy, in service and without work."""
        return self._free

    def members(self, place: str) -> AbstractSet[str]:
        """Those at a place, ``rack:r12``."""
        return self._members.get(place, frozenset())

    def in_state(self, state: NodeState) -> AbstractSet[str]:
        """Those in a state of their life."""
        return self._in_state.get(state, frozenset())

"""Which nodes hold ranks of which attempt of a job, and which incidents have ordered something from those ranks."""

from __future__ import annotations

from collections.abc import Iterable

from remediator.model.journal_records import Action, JobRef, NodeRecord


class JobIndex:
    """Follows the node records and the actions of open incidents; holds no other data."""

    def __init__(self) -> None:
        self._nodes: dict[JobRef, set[str]] = {}
        self._incidents: dict[JobRef, set[str]] = {}
        self._ordered: dict[str, set[JobRef]] = {}  # the same, by incident

    def put(self, before: tuple[JobRef, ...], node: NodeRecord) -> bool:
        """Update the index after a node's record changed; `before` are its earlier attempts.

        Returns whether one was added.
        """
        if node.jobs == before:
            return False
        for ref in before:
            self._nodes[ref].discard(node.node)
            if not self._nodes[ref]:
                del self._nodes[ref]
        for ref in node.jobs:
            self._nodes.setdefault(ref, set()).add(node.node)
        return not set(before).issuperset(node.jobs)

    def nodes_with(self, attempt: JobRef) -> list[str]:
        """Return the names of nodes with ranks of one attempt of a job."""
        return sorted(self._nodes.get(attempt, ()))

    def nodes_of(self, job: str) -> list[str]:
        """Return the names of nodes with ranks of any attempt of a job."""
        return sorted({node for ref, nodes in self._nodes.items() if ref.job == job for node in nodes})

    def width_of(self, attempt: JobRef) -> int:
        """Return how many nodes hold ranks of one attempt of a job."""
        return len(self._nodes.get(attempt, ()))

    def put_order(self, action: Action) -> None:
        """Update the index after an action was planned."""
        if action.order is not None and action.order.job:
            attempt = JobRef(action.order.job, action.order.attempt or 0)
            self._incidents.setdefault(attempt, set()).add(action.incident)
            self._ordered.setdefault(action.incident, set()).add(attempt)

    def forget_orders(self, incident: str) -> None:
        """Update the index after an incident, by id, was closed."""
        for attempt in self._ordered.pop(incident, ()):
            self._incidents[attempt].discard(incident)
            if not self._incidents[attempt]:
                del self._incidents[attempt]

    def incidents_ordering(self, attempts: Iterable[JobRef]) -> set[str]:
        """Return the open incidents, by id, that have ordered something from ranks of these attempts."""
        return {incident for attempt in attempts for incident in self._incidents.get(attempt, ())}

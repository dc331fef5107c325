"""Which nodes hold ranks of which attempt of a job."""

from __future__ import annotations

from remediator.model.journal_records import JobRef, NodeRecord


class JobIndex:
    """Follows the node records; holds no other data."""

    def __init__(self) -> None:
        self._nodes: dict[JobRef, set[str]] = {}

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

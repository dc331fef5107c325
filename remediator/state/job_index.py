"""Which nodes hold ranks of which attempt of which job."""

from __future__ import annotations

from remediator.model.journal_records import JobRef, NodeRecord


class JobIndex:
    """Follows the node records; knows nothing that they do not say."""

    def __init__(self) -> None:
        self._nodes: dict[JobRef, set[str]] = {}

    def put(self, before: tuple[JobRef, ...], node: NodeRecord) -> bool:
        """A node's record is another now, and held these attempts `before`; whether one has come that it did not hold."""
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
        """Names of the nodes that hold ranks of an attempt of a job."""
        return sorted(self._nodes.get(attempt, ()))

    def nodes_of(self, job: str) -> list[str]:
        """Names of the nodes with ranks of any attempt of a job."""
        return sorted({node for ref, nodes in self._nodes.items() if ref.job == job for node in nodes})

    def width_of(self, attempt: JobRef) -> int:
        """How many nodes hold ranks of an attempt of a job."""
        return len(self._nodes.get(attempt, ()))

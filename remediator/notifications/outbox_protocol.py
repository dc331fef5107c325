"""The store interface of the delivery workers, which do not import the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remediator.model.delivery import Delivery


class OutboxStore(Protocol):
    """The durable outbox. Every change is durable on return, and refused once another leader has taken over."""

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Add new ones; known ids stay unchanged."""

    def save(self, deliveries: Sequence[Delivery], epoch: int) -> None:
        """Save them as they are now, all or none.

        Raises:
            LeadershipLost: this term has ended.
        """

    def waiting(self, receiver: str) -> list[Delivery]:
        """Return what is to be sent, oldest first."""

    def unresolved(self, receiver: str) -> list[Delivery]:
        """Return what the receiver got and must be resolved there, oldest first."""

    def begun(self, receiver: str, since: float) -> list[float]:
        """Return the start times of batches that count against the rate."""

    def left_for(self) -> dict[str, int]:
        """Return how many wait, by receiver."""

    def forget(self, before: float) -> None:
        """Drop what ended before then."""

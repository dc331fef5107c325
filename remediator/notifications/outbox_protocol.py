"""What the couriers need of the store, which they do not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from remediator.model.delivery import Delivery


class OutboxStore(Protocol):
    """The outbox on the disk. Every change is durable when it returns, and refused once another leader has taken over."""

    def add(self, deliveries: Sequence[Delivery]) -> None:
        """Write new ones; those whose id is known stay as they are."""
        ...

    def save(self, deliveries: Sequence[Delivery], epoch: int) -> None:
        """Write them as they are now, all or none.

        Raises:
            LeadershipLost: this epoch is over.
        """
        ...

    def waiting(self, receiver: str) -> list[Delivery]:
        """What is to be sent, oldest first."""
        ...

    def told(self, receiver: str) -> list[Delivery]:
        """What the receiver knows of and must hear the end of, oldest first."""
        ...

    def begun(self, receiver: str, since: float) -> list[float]:
        """When pieces were begun that the rate counts, one time for each."""
        ...

    def left_for(self) -> dict[str, int]:
        """How many wait, by receiver."""
        ...

    def forget(self, before: float) -> None:
        """Drop what was over before then."""
        ...

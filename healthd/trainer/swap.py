"""What the guard asks of a launcher that replaces single ranks, so that the others need not end when a node must go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from healthd.trainer.page import MailboxOrder


class NextGeneration(BaseException):  # no error: the step ended well
    """Unwinds the training function of a rank that goes on in the next generation of the process group."""


class Swap(Protocol):
    """The launcher, as far as the guard needs it. No call waits."""

    enabled: bool  # whether the launcher replaces ranks; the same on every rank, as long as the job runs

    @property
    def can_swap(self) -> bool:
        """Whether a spare would take the place of a rank that leaves, or has taken it already."""
        ...

    @property
    def over(self) -> bool:
        """Whether this rank's generation is over: a newer one is there."""
        ...

    def evict(self, nodes: Collection[str], why: str) -> None:
        """These nodes are condemned: replace every rank there."""
        ...

    def leave(self, code: int, why: str) -> None:
        """This rank is about to end with `code`."""
        ...


class NoSwap:
    """A launcher that starts all ranks anew."""

    enabled = can_swap = over = False

    def evict(self, nodes: Collection[str], why: str) -> None:
        """Nobody would be replaced."""

    def leave(self, code: int, why: str) -> None:
        """The exit code alone tells it."""


def carried_out_by_swap(orders: Collection[MailboxOrder], graceful: str) -> bool:
    """Whether these orders only want single nodes to go, all of the kind `graceful`, so that the job need not stop."""
    return any(order.condemned for order in orders) and all(order.kind == graceful for order in orders)

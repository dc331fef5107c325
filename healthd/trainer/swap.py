"""What the guard asks of a launcher that replaces single ranks, so that the others need not end when a node must go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class NextGeneration(BaseException):  # no error: the step ended well
    """Unwinds the training function of a rank that goes on in the next generation of the process group."""


class Swap(Protocol):
    """The launcher, as far as the guard needs it. No call waits."""

    @property
    def can_swap(self) -> bool:
        """Whether a spare would take the place of a rank that leaves."""
        ...

    def evict(self, nodes: Collection[str], why: str) -> None:
        """These nodes are condemned: replace every rank there."""
        ...

    def leave(self, code: int, why: str) -> None:
        """This rank is about to end with `code`."""
        ...

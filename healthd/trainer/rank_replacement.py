"""What the guard asks of a launcher that replaces single ranks, so that the others need not end when a node must go."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from healthd.trainer.beacons.beacon_page import MailboxOrder

GROWTH = "grow-"  # how the id of an order begins that the launcher gives itself: pause, so that the job can grow


class NextGeneration(BaseException):  # no error: the step ended well
    """Unwinds the training function of a rank that continues in the next generation of the process group."""


class RankReplacer(Protocol):
    """The launcher, as far as the guard needs it. No call waits."""

    enabled: bool  # whether the launcher replaces ranks; the same on every rank, as long as the job runs

    @property
    def noticed(self) -> bool:
        """Whether there is an order to take."""

    def take(self) -> MailboxOrder | None:
        """The launcher's order to pause, so that the job can grow; each once."""

    @property
    def can_swap(self) -> bool:
        """Whether a spare would take the place of a rank that leaves, or has taken it already."""

    @property
    def over(self) -> bool:
        """Whether this rank's generation has ended: a newer one exists."""

    def note_step(self) -> None:
        """A step begins."""

    def has_rank_on(self, nodes: Collection[str]) -> bool:
        """Whether a rank of this generation is on one of these nodes."""

    def evict(self, nodes: Collection[str], why: str) -> None:
        """These nodes are condemned: replace every rank there."""

    def leave(self, code: int, why: str) -> None:
        """This rank is about to end with `code`; its node is condemned, so replace it."""


class NoRankReplacer:
    """A launcher that restarts all ranks."""

    enabled = can_swap = over = noticed = False

    def take(self) -> MailboxOrder | None:
        """Never grows."""

    def note_step(self) -> None:
        """Does nothing: steps are not counted."""

    def has_rank_on(self, nodes: Collection[str]) -> bool:  # noqa: ARG002 - as `RankReplacer` has it
        """Every order concerns this job."""
        return True

    def evict(self, nodes: Collection[str], why: str) -> None:
        """No rank would be replaced."""

    def leave(self, code: int, why: str) -> None:
        """The exit code alone shows it."""


class Evictions:
    """Orders for which one rank need not leave: a launcher replaces the ranks of the condemned nodes, and those alone."""

    def __init__(self, swap: RankReplacer, node: str) -> None:
        """Args: `node`: where this rank is."""
        self._swap, self._node = swap, node
        self._asked = ""  # id of the newest order that the launcher was asked to act on

    def done(self, order: MailboxOrder) -> bool:
        """Whether its nodes have no rank left: an order comes again in the mailboxes of a new generation."""
        return bool(order.condemned) and not self._swap.has_rank_on(order.condemned)

    def ask(self, order: MailboxOrder) -> bool:
        """Have the ranks of its nodes replaced; False where none can, or this rank is one of them."""
        if not order.condemned or self._node in order.condemned:
            return False
        if order.id != self._asked:
            if not self._swap.can_swap:
                return False
            self._asked = order.id
            self._swap.evict(order.condemned, order.reason)
        return True


def is_done_by_replacement(orders: Collection[MailboxOrder], graceful: str) -> bool:
    """Whether these orders only want single nodes to go or the job to grow, all of the kind `graceful`, so that it need not stop."""
    return bool(orders) and all(order.kind == graceful and (order.condemned or is_growth(order)) for order in orders)


def is_growth(order: MailboxOrder) -> bool:
    """Whether the launcher wants the ranks to pause, so that the job can grow: no rank leaves then."""
    return order.id.startswith(GROWTH)

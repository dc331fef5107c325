"""The launcher that replaces ranks, as the guard of one generation sees it over the rendezvous. No framework in here."""

from __future__ import annotations

import functools
import time
from collections.abc import Collection

from healthd.trainer.agreement import GRACEFUL
from healthd.trainer.beacons.beacon_page import MailboxOrder
from healthd.trainer.rendezvous_client import Generation, RendezvousClient

GROW_SECONDS = 600.0  # for the ranks to agree on a step at which to pause


class RendezvousReplacer:
    """The guard's `RankReplacer`, in one generation."""

    enabled = True

    def __init__(self, rendezvous: RendezvousClient, generation: Generation) -> None:
        self._rendezvous, self._generation = rendezvous, generation
        self.note_step = rendezvous.note_step
        self.evict = rendezvous.evict
        self.leave = functools.partial(rendezvous.leave, replace=True)
        self._taken = ""  # the request to pause that was taken last

    def has_rank_on(self, nodes: Collection[str]) -> bool:
        """Whether a rank of this generation is on one of these nodes."""
        return any(peer.node in nodes for peer in self._generation.peers)

    @property
    def noticed(self) -> bool:
        """Whether the launcher's request to pause is a new one."""
        return self._rendezvous.pause_request != self._taken

    def take(self) -> MailboxOrder | None:
        """The launcher's request to pause, as an order; each once, none in a generation that is over."""
        request, self._taken = self._rendezvous.pause_request, self._rendezvous.pause_request
        if not request or self.over:
            return None
        return MailboxOrder(request, GRACEFUL, "the job grows", (), time.time() + GROW_SECONDS)

    @property
    def over(self) -> bool:
        """Whether a newer generation is there."""
        return self._rendezvous.is_over(self._generation.number)

    @property
    def can_swap(self) -> bool:
        """Whether the others go on in place if a rank leaves."""
        return self.over or self._rendezvous.can_swap

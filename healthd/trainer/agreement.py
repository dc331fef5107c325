"""Lets all ranks act on an order at the same step, or none. `docs/internals/agreement.md` holds the argument.

Nothing is sent while there is no order. A rank that finds one votes for it at its next step boundary. A rank that knows
that all have voted proposes the step after its own. Every rank learns of it before that step, because the collective of
the step in between completes nowhere before that rank has entered it. Votes are irrevocable. The outcome, for or
against the order, is written by one compare-and-set, so there is only one. A rank that has voted passes no boundary
without knowing the outcome.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple, Protocol

from healthd.trainer.beacons.beacon_page import MailboxOrder, OrderOutcome
from healthd.trainer.store_caller import StoreCaller, StoreGoneError

# Orders that need agreement: values of vocabulary.order.OrderKind, which needs a codec.
GRACEFUL, STOP, REVERT = "checkpoint_then_eject", "checkpoint_then_stop", "revert"
FINISHED_MAX = 256  # order ids remembered to recognise a repeated order
PENDING_MAX = 8  # orders in the vote at one time
PROBE_SECONDS = 5.0  # store timeout before this rank has voted; training waits that long
WORD_SECONDS = 20.0  # store timeout afterwards; shorter than a scheduler's grace period and a collective's timeout
_NEVER = -1
_OPEN = 0


class Store(Protocol):
    """The store shared by a job's ranks: torch's TCPStore, PrefixStore, FileStore and HashStore implement it.

    Both methods are called from the guard's threads.
    """

    def add(self, key: str, amount: int, /) -> int:
        """Atomically add to a counter that starts at 0; return the new value, once the store has it."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Atomically set a key that holds `expected` (empty: is absent) to `desired`; return its value now."""


def explain_vote_refusal(kind: str, *, can_go_back: bool, can_agree: bool) -> str:
    """Return why a rank does not vote on an order of this kind; empty if it does.

    Without its vote nothing is agreed.
    """
    if kind not in (GRACEFUL, STOP, REVERT):
        return f"this rank does not know the order {kind!r}"
    if kind == REVERT and not can_go_back:
        return "this job has no way to go back: use guard.on_revert(...)"
    return "" if can_agree else "no store: ranks need Guard.from_env(store=...) to agree"


class LocalStore:
    """A store within one process, for a job of one rank and for tests."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; return the new value."""
        with self._lock:
            value = int(self._held.get(key, "0")) + amount
            self._held[key] = str(value)
            return value

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a key that holds the expected value; return its value now."""
        with self._lock:
            if self._held.get(key, "") == expected:
                self._held[key] = desired
            return self._held.get(key, expected).encode()


class DroppedOrder(NamedTuple):
    """An order that was not agreed, and the reason if there is one to give."""

    order: MailboxOrder
    outcome: OrderOutcome
    why: str = ""


class BoundaryDecision(NamedTuple):
    """The result of a boundary: orders to perform in this step, boundaries agreed, orders dropped."""

    due: tuple[MailboxOrder, ...] = ()
    agreed: tuple[tuple[MailboxOrder, int], ...] = ()
    dropped: tuple[DroppedOrder, ...] = ()


class AgreementMissedError(Exception):
    """The agreed step is behind this rank: it ran ahead of a collective, so the ranks can no longer act together."""


class _Vote:
    """This rank's position on an order it has voted for, or may have; `counted`: the store has confirmed the vote."""

    def __init__(self, order: MailboxOrder) -> None:
        self.order = order
        self.counted = self.all_voted = self.unwanted = False
        self.agreed = 0


class Agreement:
    """One rank's part in every vote of its job. Call `at_boundary` before the collective of every step, in order."""

    def __init__(self, store: Store, world: int, prefix: str, patience: StoreCaller | None = None) -> None:
        self._store = store
        self._world = world
        self._prefix = prefix
        self._patience = patience or StoreCaller()
        self._votes: OrderedDict[str, _Vote] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()
        self.agreed = False  # on a future boundary; a plain attribute, for other threads

    @property
    def pending(self) -> bool:
        """Whether this rank has voted, or may have, and waits for the outcome: it must not train on without one."""
        return bool(self._votes)

    def at_boundary(self, number: int, now: float, *orders: MailboxOrder) -> BoundaryDecision:
        """Learn outcomes and accept new orders, before a step.

        Args:
            number: of this boundary, from 1 on; grows by one from call to call, and is the same on every rank at the same step.
            now: UTC seconds, against the orders' expiry.
            orders: what was ordered, if anything new.

        Raises:
            AgreementMissedError: a decision is behind us (the host ran ahead of its device).
            StoreGoneError: this rank may have voted and cannot learn what was decided: it must leave.
        """
        for order in orders:
            self._known(order)
        agreed: list[tuple[MailboxOrder, int]] = []
        dropped: list[DroppedOrder] = []
        for vote in list(self._votes.values()):
            self._learn(vote, number, now, agreed, dropped)
        due = self._due(number)
        if not due:  # otherwise this rank leaves in this step, and another vote would bind it to nothing
            for order in orders:
                if not self._known(order):
                    self._take(order, number, now, agreed, dropped)
        self.agreed = any(vote.agreed for vote in self._votes.values())
        return BoundaryDecision(due, tuple(agreed), tuple(dropped))

    def forget(self) -> tuple[MailboxOrder, ...]:
        """Drop every vote without notice: only for a rank that leaves before it enters another collective."""
        orders = tuple(vote.order for vote in self._votes.values())
        for order in orders:
            self._finish(order)
        return orders

    def _known(self, order: MailboxOrder) -> bool:
        """Return whether this rank has finished with the order or voted on it; a cancellation is recorded."""
        vote = self._votes.get(order.id)
        if vote is not None:
            vote.unwanted |= order.cancelled
        return vote is not None or order.id in self._finished

    def _take(
        self,
        order: MailboxOrder,
        number: int,
        now: float,
        agreed: list[tuple[MailboxOrder, int]],
        dropped: list[DroppedOrder],
    ) -> None:
        """Vote if the store is available. Until then nothing can be agreed, so this rank may still abstain."""
        expired = now > order.expires_at or len(self._votes) >= PENDING_MAX
        stays_out = order.cancelled or expired
        try:
            wanted = _NEVER if stays_out else _OPEN
            word = self._patience.call_with_retries(lambda: self._word(order, wanted), PROBE_SECONDS)
        except StoreGoneError as error:
            word, why = _OPEN, str(error)
        else:
            why = (
                "it was decided before this rank voted: check whether the store outlives an attempt" if word > 0 else ""
            )
        if stays_out:
            dropped.append(self._drop(order, OrderOutcome.CANCELLED if order.cancelled else OrderOutcome.EXPIRED))
        elif why:
            dropped.append(self._drop(order, OrderOutcome.FAILED, why))
        elif word == _NEVER:
            dropped.append(self._drop(order, _classify_drop(order, now)))
        else:
            self._votes[order.id] = vote = _Vote(order)
            self._cast(vote)
            if vote.all_voted:
                self._learn(vote, number, now, agreed, dropped)

    def _cast(self, vote: _Vote) -> None:
        """Cast the vote, never twice: a double vote would count for a rank that has not voted."""
        try:
            votes = self._patience.call_once(lambda: self._store.add(self._key(vote.order, "votes"), 1), PROBE_SECONDS)
        except Exception:  # noqa: BLE001 - a store of any make: counted or not, from here on this rank is bound
            return
        vote.counted, vote.all_voted = True, votes == self._world

    def _count(self, vote: _Vote) -> None:
        """Check whether this rank's vote was the last; without an answer, check again later."""
        with suppress(Exception):
            votes = self._patience.call_once(lambda: self._store.add(self._key(vote.order, "votes"), 0), PROBE_SECONDS)
            vote.all_voted = votes == self._world

    def _learn(
        self, vote: _Vote, number: int, now: float, agreed: list[tuple[MailboxOrder, int]], dropped: list[DroppedOrder]
    ) -> None:
        """Learn the outcome, and decide if it is this rank's turn or the order has expired."""
        if vote.agreed:
            return
        order, over = vote.order, vote.unwanted or now > vote.order.expires_at
        if not vote.counted and not over:
            self._count(vote)
        wanted = number + 1 if vote.all_voted else _NEVER if over else _OPEN
        word = self._patience.call_with_retries(lambda: self._word(order, wanted), WORD_SECONDS)
        if word == _NEVER:
            dropped.append(self._drop(order, _classify_drop(order, now)))
        elif word > 0:
            vote.agreed = word
            agreed.append((order, word))

    def _word(self, order: MailboxOrder, wanted: int) -> int:
        """Return the outcome, after proposing `wanted` if there is none. Idempotent: the first proposal wins."""
        key = self._key(order, "step")
        word = int(self._store.compare_set(key, "", str(wanted)))
        if word == _OPEN and wanted != _OPEN:
            word = int(self._store.compare_set(key, str(_OPEN), str(wanted)))
            if word == _OPEN:
                raise ConnectionError("the store has forgotten what it held")
        return word

    def _due(self, number: int) -> tuple[MailboxOrder, ...]:
        for vote in self._votes.values():
            if 0 < vote.agreed < number:
                raise AgreementMissedError(
                    f"order {vote.order.id}: the ranks agreed on boundary {vote.agreed}, but this one is already at {number}; each step needs "
                    "a collective over all ranks, and on a GPU the guard needs its framework's adapter to wait for the device"
                )
        due = tuple(vote.order for vote in self._votes.values() if vote.agreed == number)
        for order in due:
            self._finish(order)
        return due

    def _drop(self, order: MailboxOrder, outcome: OrderOutcome, why: str = "") -> DroppedOrder:
        self._finish(order)
        return DroppedOrder(order, outcome, why)

    def _finish(self, order: MailboxOrder) -> None:
        self._votes.pop(order.id, None)
        self._finished[order.id] = None
        while len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    def _key(self, order: MailboxOrder, what: str) -> str:
        return f"{self._prefix}/{order.id}/{what}"


def _classify_drop(order: MailboxOrder, now: float) -> OrderOutcome:
    return OrderOutcome.EXPIRED if now > order.expires_at else OrderOutcome.CANCELLED

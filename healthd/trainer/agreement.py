"""All ranks act on an order at the same step, or none does. `docs/internals/agreement.md` holds the argument.

Nothing is sent while there is no order. A rank that finds one votes for it at its next step boundary; who knows that all
have voted names the step after its own; every rank learns of it before that step, because the collective of the step in
between completes nowhere before that rank has entered it. Voting is irrevocable. What is decided, for the order or against it, is
written by one compare-and-set, so there is one decision. A rank that has voted passes no boundary without knowing what is decided.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from typing import NamedTuple, Protocol

from healthd.trainer.page import MailboxOrder, Outcome
from healthd.trainer.patience import Patience, StoreGoneError

# Orders that the ranks agree on: values of vocabulary.order.OrderKind, which needs a codec.
GRACEFUL, STOP, REVERT = "checkpoint_then_eject", "checkpoint_then_stop", "revert"
FINISHED_MAX = 256  # order ids remembered, to know a repeated order
PENDING_MAX = 8  # orders in the vote at one time
PROBE_SECONDS = 5.0  # for a word from the store before this rank has voted: so long training waits for it
WORD_SECONDS = 20.0  # and after: less than schedulers wait after SIGTERM, less than a collective waits for its ranks
_NEVER = -1
_OPEN = 0


class Store(Protocol):
    """What the ranks of a job share: torch's TCPStore, PrefixStore, FileStore and HashStore all have it.

    Both are called from threads of the guard's own.
    """

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0, atomically; the new value, once the store has it."""
        ...

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Atomically: a key that holds `expected`, or does not exist if that is empty, then holds `desired`; what it holds now."""
        ...


def why_no_vote(kind: str, *, can_go_back: bool, can_agree: bool) -> str:
    """Why a rank takes no part in a vote on an order of this kind; empty if it does. Its peers' votes then don't suffice."""
    if kind not in (GRACEFUL, STOP, REVERT):
        return f"this rank knows no order {kind!r}"
    if kind == REVERT and not can_go_back:
        return "this job cannot go back by itself: guard.on_revert(...) is how"
    return "" if can_agree else "no store: Guard.from_env(store=...) is how ranks agree"


class LocalStore:
    """A store within one process, for a job of one rank and for tests."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; the new value."""
        with self._lock:
            value = int(self._held.get(key, "0")) + amount
            self._held[key] = str(value)
            return value

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a key that holds what is expected; what it holds now."""
        with self._lock:
            if self._held.get(key, "") == expected:
                self._held[key] = desired
            return self._held.get(key, expected).encode()


class Dropped(NamedTuple):
    """An order that came to nothing, and why if that needs words."""

    order: MailboxOrder
    outcome: Outcome
    why: str = ""


class Ruling(NamedTuple):
    """What a boundary brought: the orders to act upon in this very step, the boundaries agreed, the orders that came to nothing."""

    due: tuple[MailboxOrder, ...] = ()
    agreed: tuple[tuple[MailboxOrder, int], ...] = ()
    dropped: tuple[Dropped, ...] = ()


class AgreementMissedError(Exception):
    """The agreed step lies behind this rank: it ran ahead of a collective, so the ranks can't act together any more."""


class _Vote:
    """Where this rank stands with an order it has voted for, or may have: `counted` says whether the store has told."""

    def __init__(self, order: MailboxOrder) -> None:
        self.order = order
        self.counted = self.all_voted = self.unwanted = False
        self.agreed = 0


class Agreement:
    """One rank's part in every vote of its job. Call `at_boundary` before a step's collective, every step, in order."""

    def __init__(self, store: Store, world: int, prefix: str, patience: Patience | None = None) -> None:
        self._store = store
        self._world = world
        self._prefix = prefix
        self._patience = patience or Patience()
        self._votes: OrderedDict[str, _Vote] = OrderedDict()
        self._finished: OrderedDict[str, None] = OrderedDict()
        self.agreed = False  # on a boundary ahead; a plain attribute, for other threads

    @property
    def pending(self) -> bool:
        """Whether this rank has voted, or may have, and waits for the outcome: then it must not train on without a ruling."""
        return bool(self._votes)

    def at_boundary(self, number: int, now: float, *orders: MailboxOrder) -> Ruling:
        """Before a step: learn what was decided, take in new orders.

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
        dropped: list[Dropped] = []
        for vote in list(self._votes.values()):
            self._learn(vote, number, now, agreed, dropped)
        due = self._due(number)
        if not due:  # else we leave in this step, and a vote more would bind us to nothing
            for order in orders:
                if not self._known(order):
                    self._take(order, number, now, agreed, dropped)
        self.agreed = any(vote.agreed for vote in self._votes.values())
        return Ruling(due, tuple(agreed), tuple(dropped))

    def forget(self) -> tuple[MailboxOrder, ...]:
        """Give up every vote without telling anybody: only for a rank that leaves before it enters another collective."""
        orders = tuple(vote.order for vote in self._votes.values())
        for order in orders:
            self._finish(order)
        return orders

    def _known(self, order: MailboxOrder) -> bool:
        """Whether this rank is through with it or has voted on it; a word that it is cancelled is noted."""
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
        dropped: list[Dropped],
    ) -> None:
        """Vote, if the store is there. Without this rank's vote nothing can be agreed, so until then it may always stay out."""
        expired = now > order.expires_at or len(self._votes) >= PENDING_MAX
        stays_out = order.cancelled or expired
        try:
            word = self._patience.insist(lambda: self._word(order, _NEVER if stays_out else _OPEN), PROBE_SECONDS)
        except StoreGoneError as error:
            word, why = _OPEN, str(error)
        else:
            why = "it was decided before this rank had voted: does its store outlive an attempt?" if word > 0 else ""
        if stays_out:
            dropped.append(self._drop(order, Outcome.CANCELLED if order.cancelled else Outcome.EXPIRED))
        elif why:
            dropped.append(self._drop(order, Outcome.FAILED, why))
        elif word == _NEVER:
            dropped.append(self._drop(order, _how(order, now)))
        else:
            self._votes[order.id] = vote = _Vote(order)
            self._cast(vote)
            if vote.all_voted:
                self._learn(vote, number, now, agreed, dropped)

    def _cast(self, vote: _Vote) -> None:
        """Never twice: a vote that is counted twice stands for a rank that has not voted."""
        try:
            votes = self._patience.once(lambda: self._store.add(self._key(vote.order, "votes"), 1), PROBE_SECONDS)
        except Exception:  # noqa: BLE001 - a store of any make: counted or not, from here on this rank is bound
            return
        vote.counted, vote.all_voted = True, votes == self._world

    def _count(self, vote: _Vote) -> None:
        """Whose own vote may have been the last one without its knowing looks here for that; without an answer it looks again later."""
        with suppress(Exception):
            votes = self._patience.once(lambda: self._store.add(self._key(vote.order, "votes"), 0), PROBE_SECONDS)
            vote.all_voted = votes == self._world

    def _learn(
        self, vote: _Vote, number: int, now: float, agreed: list[tuple[MailboxOrder, int]], dropped: list[Dropped]
    ) -> None:
        """What is decided on this order; decide, if it is this rank's turn or the order is over."""
        if vote.agreed:
            return
        order, over = vote.order, vote.unwanted or now > vote.order.expires_at
        if not vote.counted and not over:
            self._count(vote)
        wanted = number + 1 if vote.all_voted else _NEVER if over else _OPEN
        word = self._patience.insist(lambda: self._word(order, wanted), WORD_SECONDS)
        if word == _NEVER:
            dropped.append(self._drop(order, _how(order, now)))
        elif word > 0:
            vote.agreed = word
            agreed.append((order, word))

    def _word(self, order: MailboxOrder, wanted: int) -> int:
        """What is decided, after this rank has decided so unless somebody had. May be asked again: the first to decide stays it."""
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
                    f"order {vote.order.id}: the ranks agreed on boundary {vote.agreed}, this one is at {number} already; each step needs "
                    "a collective over all ranks, and on a GPU the guard needs its framework's adapter to wait for the device"
                )
        due = tuple(vote.order for vote in self._votes.values() if vote.agreed == number)
        for order in due:
            self._finish(order)
        return due

    def _drop(self, order: MailboxOrder, outcome: Outcome, why: str = "") -> Dropped:
        self._finish(order)
        return Dropped(order, outcome, why)

    def _finish(self, order: MailboxOrder) -> None:
        self._votes.pop(order.id, None)
        self._finished[order.id] = None
        while len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)

    def _key(self, order: MailboxOrder, what: str) -> str:
        return f"{self._prefix}/{order.id}/{what}"


def _how(order: MailboxOrder, now: float) -> Outcome:
    return Outcome.EXPIRED if now > order.expires_at else Outcome.CANCELLED

"""All ranks act on an order at the same step, or none does. `docs/agreement.md` holds the argument.

Nothing is sent while there is no order. A rank that finds one votes for it at its next step boundary; the last rank to
vote names the step after its own; every rank learns of it before that step, because the collective of the step in
between completes nowhere before the last voter has entered it. Voting is irrevocable. Whoever wants out (cancelled,
expired) and the last voter draw one ticket, so there is one decision, for all or against.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple, Protocol

from healthd.trainer.page import MailboxOrder, Outcome

FINISHED_MAX = 256  # order ids remembered, to know a repeated order
PENDING_MAX = 8  # orders in the vote at one time
_NEVER = -1


class Store(Protocol):
    """What the ranks of a job share: torch's TCPStore, PrefixStore, FileStore and HashStore all have it."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0, atomically; the new value, once the store has it."""
        ...


class LocalStore:
    """A store within one process, for a job of one rank and for tests."""

    def __init__(self) -> None:
        self._counters: dict[str, int] = {}
        self._lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; the new value."""
        with self._lock:
            self._counters[key] = value = self._counters.get(key, 0) + amount
            return value


class Ruling(NamedTuple):
    """What a boundary brought: the orders to act upon in this very step, the steps agreed, the orders that came to nothing."""

    due: tuple[MailboxOrder, ...] = ()
    agreed: tuple[tuple[MailboxOrder, int], ...] = ()
    dropped: tuple[tuple[MailboxOrder, Outcome], ...] = ()


class AgreementMissedError(Exception):
    """The agreed step lies behind this rank: it ran ahead of a collective, so the ranks can't act together any more."""


class Agreement:
    """One rank's part in every vote of its job. Call `at_boundary` before a step's collective, every step, in order."""

    def __init__(self, store: Store, world: int, prefix: str) -> None:
        self._store = store
        self._world = world
        self._prefix = prefix
        self._pending: OrderedDict[str, MailboxOrder] = OrderedDict()
        self._agreed: dict[str, int] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()

    @property
    def pending(self) -> bool:
        """Whether this rank has voted and waits for the outcome."""
        return bool(self._pending)

    def at_boundary(self, step: int, now: float, order: MailboxOrder | None = None) -> Ruling:
        """Before step `step`: take in a new order, learn what was decided.

        Args:
            step: the step about to begin, at least 0; grows by one from call to call.
            now: UTC seconds, against the orders' expiry.
            order: what the mailbox held, if anything new.

        Raises:
            AgreementMissedError: a decision is behind us (the host ran ahead of its device).
            Exception: whatever the store raises when it is out of reach.
        """
        dropped: list[tuple[MailboxOrder, Outcome]] = []
        if order is not None and order.id not in self._finished:
            dropped += self._take(order, step, now)
        due: list[MailboxOrder] = []
        agreed: list[tuple[MailboxOrder, int]] = []
        for pending in list(self._pending.values()):
            decided = self._agreed.get(pending.id) or self._store.add(self._key(pending, "step"), 0)
            if decided > 0:
                if pending.id not in self._agreed:
                    agreed.append((pending, decided))
                self._agreed[pending.id] = decided
                due += self._due(pending, decided, step)
            elif decided == _NEVER:
                dropped.append((pending, self._finish(pending, _why(pending, now))))
            elif now > pending.expires_at:
                dropped += self._withdraw(pending, Outcome.EXPIRED)
        return Ruling(tuple(due), tuple(agreed), tuple(dropped))

    def forget(self) -> tuple[MailboxOrder, ...]:
        """Give up every vote, without telling anybody (the store is gone)."""
        orders = tuple(self._pending.values())
        for order in orders:
            self._finish(order, Outcome.FAILED)
        return orders

    def _take(self, order: MailboxOrder, step: int, now: float) -> list[tuple[MailboxOrder, Outcome]]:
        if order.cancelled:
            return self._withdraw(order, Outcome.CANCELLED)
        if order.id in self._pending:
            return []
        if now > order.expires_at or len(self._pending) >= PENDING_MAX:
            return self._withdraw(order, Outcome.EXPIRED)
        self._pending[order.id] = order
        if self._store.add(self._key(order, "votes"), 1) == self._world and self._draw(order):
            self._store.add(self._key(order, "step"), step + 1)
        return []

    def _withdraw(self, order: MailboxOrder, outcome: Outcome) -> list[tuple[MailboxOrder, Outcome]]:
        """Decide against the order, unless somebody has decided already; then that stands, and a later look shows it."""
        voted = order.id in self._pending
        if order.id in self._agreed:
            return []  # too late
        if self._draw(order):
            self._store.add(self._key(order, "step"), _NEVER)
        elif voted:
            return []
        return [(order, self._finish(order, outcome))]

    def _draw(self, order: MailboxOrder) -> bool:
        return self._store.add(self._key(order, "ticket"), 1) == 1

    def _due(self, order: MailboxOrder, decided: int, step: int) -> list[MailboxOrder]:
        if decided < step:
            raise AgreementMissedError(
                f"order {order.id}: the ranks agreed on step {decided}, this one is at step {step} already; each step needs a "
                "collective over all ranks, and on a GPU the guard needs its framework's adapter to wait for the device"
            )
        if decided > step:
            return []
        self._finish(order, Outcome.AGREED)
        return [order]

    def _finish(self, order: MailboxOrder, outcome: Outcome) -> Outcome:
        self._pending.pop(order.id, None)
        self._agreed.pop(order.id, None)
        self._finished[order.id] = None
        while len(self._finished) > FINISHED_MAX:
            self._finished.popitem(last=False)
        return outcome

    def _key(self, order: MailboxOrder, what: str) -> str:
        return f"{self._prefix}/{order.id}/{what}"


def _why(order: MailboxOrder, now: float) -> Outcome:
    return Outcome.EXPIRED if now > order.expires_at else Outcome.CANCELLED

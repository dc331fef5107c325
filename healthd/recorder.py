"""Decides when the ledger is written, and what happens when it cannot be. Owned by the main loop.

What is new is written at once; mere repeats and a cursor that passed idle lines may wait, because a crash only means
that those lines are read, and counted, once more.
"""

from __future__ import annotations

import logging
from collections import deque

from healthd.facts import Clear, Raise
from healthd.ledger import Ledger
from healthd.orders.store import OrderStore
from healthd.orders.task import Proof
from healthd.outbox import Condemned, Outbox, OutboxCorrupt, OutboxFull
from healthd.samples.kernel import Cursor
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu

REPEATS_WAIT_S = 1.0
CURSOR_WAIT_S = 60.0
RETRY_S = 1.0

_AGENT = Component(ComponentKind.AGENT, name="healthd")
_log = logging.getLogger("healthd")


class Recorder:
    """Ledger, kernel cursor, expected GPUs and proofs, on their way to the disk. `condemned` is as last read there."""

    def __init__(self, ledger: Ledger, outbox: Outbox, orders: OrderStore, now: float) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._orders = orders
        self._stored_cursor = self._cursor = outbox.cursor()
        self._stored_gpus = self._gpus = outbox.gpus()
        self._proofs: deque[Proof] = deque()
        self._waiting_since: float | None = None
        self._next_try = 0.0
        self._lost: dict[str, int] = {}  # what was said of losses
        self._written_at = 0.0
        self.condemned: Condemned | None = outbox.condemned()
        self._say_writable(now)  # should it not be so, the write of this very fact will fail
        if outbox.problem:
            self._say_corrupt(now)

    def read_up_to(self, cursor: Cursor | None) -> None:
        """The kernel log has been judged up to here."""
        self._cursor = cursor

    def expect(self, gpus: tuple[Gpu, ...]) -> None:
        """These GPUs belong to the node."""
        self._gpus = gpus

    def prove(self, proof: Proof) -> None:
        """Clear what `proof` disproves; its order ends in the same write."""
        self._ledger.prove(proof.answer.at, proof.by, proof.gpu, proof.until)
        self._proofs.append(proof)

    def settle(self, now: float, monotonic: float, *, at_once: bool = False) -> bool:
        """Write what is due. True if something was written that others should hear of now."""
        if monotonic < self._next_try or not (at_once or self._due(monotonic)):
            return False
        news = self._ledger.urgent or bool(self._proofs)
        try:
            self._write()
            self.condemned = self._outbox.condemned()
        except OutboxFull as error:
            self._postpone(error, now, monotonic)
            return True
        except OutboxCorrupt as error:
            self._renew(error, now, monotonic)
            return True
        self._waiting_since = None
        self._written_at = monotonic
        self._say_writable(now)
        self._say_dropped(now)
        return news

    def look_up_condemned(self, now: float, monotonic: float) -> None:
        """Another thread may have stored an order that condemns this node."""
        try:
            self.condemned = self._outbox.condemned()
        except OutboxFull:
            return
        except OutboxCorrupt as error:
            self._renew(error, now, monotonic)

    def _due(self, monotonic: float) -> bool:
        if self._ledger.urgent or self._proofs or self._gpus != self._stored_gpus:
            return True
        if self._ledger.changed:
            if self._waiting_since is None:
                self._waiting_since = monotonic
            return monotonic - self._waiting_since >= REPEATS_WAIT_S
        return self._cursor != self._stored_cursor and monotonic - self._written_at >= CURSOR_WAIT_S

    def _write(self) -> None:
        with self._outbox.transaction():
            lifted = any(proof.whole_node for proof in self._proofs)
            self._outbox.commit(tuple(self._ledger.changed.values()), self._cursor, lift_condemned=lifted)
            if self._gpus != self._stored_gpus:
                self._outbox.expect_gpus(self._gpus)
            for proof in self._proofs:
                self._orders.answer(proof.answer)
        self._ledger.settle()
        self._stored_cursor, self._stored_gpus = self._cursor, self._gpus
        self._proofs.clear()

    def _postpone(self, error: OutboxFull, now: float, monotonic: float) -> None:
        """Keep everything in memory, say so, try again: the cursor has not moved, so a crash loses nothing either."""
        self._next_try = monotonic + RETRY_S
        _log.error("findings are held in memory: %s", error)
        self._ledger.apply(
            [
                Raise(
                    check="outbox",
                    code="unwritable",
                    component=_AGENT,
                    severity=Severity.ERROR,
                    summary=f"findings are held in memory only: {error}",
                    at=now,
                )
            ]
        )

    def _say_writable(self, now: float) -> None:
        self._ledger.apply([Clear(check="outbox", code="unwritable", component=_AGENT, at=now, by="written again")])

    def _say_dropped(self, now: float) -> None:
        """That something was lost is itself a finding: nobody should take the history for whole."""
        for code, lost, words in (
            ("dropped", self._outbox.dropped, "changes of cleared findings were given up for lack of room"),
            ("rejected", self._outbox.rejected, "changes were set aside, because the remediator does not want them"),
        ):
            if lost > self._lost.get(code, 0):
                self._lost[code] = lost
                self._ledger.apply(
                    [
                        Raise(
                            check="outbox",
                            code=code,
                            component=_AGENT,
                            severity=Severity.WARNING,
                            summary=words,
                            at=now,
                            event=True,
                            evidence={"changes": lost},
                        )
                    ]
                )

    def _renew(self, error: OutboxCorrupt, now: float, monotonic: float) -> None:
        """Go on with a fresh file, and put everything that is known into it."""
        try:
            self._outbox.renew(now, str(error))
            if self.condemned is not None:
                with self._outbox.transaction():
                    self._outbox.put("condemned", self.condemned)
        except OutboxFull as full:
            self._postpone(full, now, monotonic)
            return
        self._stored_gpus = ()
        self._ledger.forget_written()
        self._say_corrupt(now)

    def _say_corrupt(self, now: float) -> None:
        """Lost history may have held a fault, or the mark of a condemned node: only a preflight makes that good."""
        _log.error("%s", self._outbox.problem)
        self._ledger.apply(
            [
                Raise(
                    check="outbox",
                    code="corrupt",
                    component=_AGENT,
                    severity=Severity.ERROR,
                    summary=f"the stored history of this node was lost: {self._outbox.problem}"[:300],
                    at=now,
                    event=True,
                )
            ]
        )

"""Decides when the ledger is written, and what is published while it cannot be. Owned by the main loop.

News is written at once; repeats and a cursor that passed idle lines may wait, because a crash only means that those
lines are read, and counted, again. One batch is in progress at a time; later changes go into the next. A finding is
published once it is durable. When the disk fails or hangs, the state in memory is published.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import msgspec

from healthd.findings.facts import Clear, Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import HealthVerification
from healthd.samples.kernel_record import Cursor
from healthd.storage.database_writer import OVERDUE_S, DatabaseWriter
from healthd.storage.history_marker import Condemnation
from healthd.storage.node_database import DatabaseCorrupt, DatabaseFull, NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu

REPEATS_WAIT_S = 1.0
CURSOR_WAIT_S = 60.0
PROVE_WRITABLE_S = 10.0  # so that a dead disk is noticed even if nothing had to be written
RETRY_S = 1.0
HUNG_S = 60.0
GRACE_S = 0.05  # a good disk is faster: waiting this long saves the main loop a second round

_AGENT = Component(ComponentKind.AGENT, name="healthd")
_WRITTEN = "written again"
# The first may be a busy disk: the node takes no new work meanwhile. The second is a fault: it is taken out of service.
_LATE = (("overdue", OVERDUE_S), ("hung", HUNG_S))
_log = logging.getLogger("healthd")


class CommitBatch(msgspec.Struct, frozen=True):
    """What goes to the disk in one transaction, and the findings that are active with it.

    `urgent`: must be published as soon as it is durable. `renews`: the database is replaced first.
    """

    active: tuple[Finding, ...]
    findings: tuple[Finding, ...]
    cursor: Cursor | None
    gpus: tuple[Gpu, ...] | None
    proofs: tuple[HealthVerification, ...]
    when_written: tuple[Callable[[], None], ...]
    urgent: bool
    renews: bool


class FindingRecorder:
    """Carries ledger, kernel cursor, expected GPUs and verifications to the disk.

    `wake` is called when a late write ends.
    """

    def __init__(
        self,
        ledger: FindingLedger,
        committer: DatabaseWriter,
        waiting: PendingChanges,
        orders: OrderStore,
        now: float,
        *,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._committer = committer
        self._waiting = waiting
        self._orders = orders
        self._wake = wake
        self._stored_cursor = self._cursor = committer.database.cursor()
        self._stored_gpus = self._gpus = committer.database.gpus()
        self._replaced: DatabaseCorrupt | None = None  # the fresh database in its place still lacks the open orders
        self._proofs: list[HealthVerification] = []
        self._when_written: list[Callable[[], None]] = []
        self._under_way: tuple[CommitBatch, Future[int]] | None = None
        self._waiting_since: float | None = None
        self._next_try = 0.0
        self._lost: dict[str, int] = {}  # reported losses
        self._written_at = 0.0
        self._failing = self._overdue = False
        self._ahead = False  # memory was published, and not all of it is durable yet
        self._told: set[tuple[str, Severity]] = set()  # published so far while the disk hangs
        self._shown = ledger.active
        self.newest = waiting.newest  # the number of the newest change in `shown`
        self._clear(["unwritable", *(code for code, _ in _LATE)], now)  # a successful write proves this
        if committer.database.problem:
            self._say_corrupt(committer.database.problem, now)

    @property
    def condemned(self) -> Condemnation | None:
        """Whether, and by what, this node is condemned: as last stored."""
        return self._orders.condemned

    @property
    def unwritten(self) -> frozenset[str]:
        """The ids of findings that are published although not durable."""
        if not self._ahead:
            return frozenset()
        under_way = self._under_way[0].findings if self._under_way is not None else ()
        return frozenset(self._ledger.changed) | {finding.id for finding in under_way}

    def shown(self) -> tuple[Finding, ...]:
        """The published findings: the durable ones, or all once the disk has failed or hung.

        In the second case all are published until they are durable: leaving a finding out meanwhile would clear it.
        """
        if self._ahead or not self._holds_news():
            self._shown = self._ledger.active
        return self._shown

    def read_up_to(self, cursor: Cursor | None) -> None:
        """Record that the kernel log has been judged up to here."""
        self._cursor = cursor

    def expect(self, gpus: tuple[Gpu, ...]) -> None:
        """Record that these GPUs belong to the node."""
        self._gpus = gpus

    def prove(self, proof: HealthVerification) -> None:
        """Clear what `proof` disproves; its order ends in the same write."""
        self._ledger.prove(proof.answer.at, proof.by, proof.gpu, proof.until)
        self._proofs.append(proof)

    def when_written(self, call: Callable[[], None]) -> None:
        """Call back once everything judged so far is durable."""
        self._when_written.append(call)

    def commit_if_due(self, now: float, monotonic: float) -> bool:
        """Process finished writes and start due ones. Return True if there is something to publish now."""
        news = self._take_in(now, monotonic) | self._judge_overdue(now, monotonic)
        if self._under_way is None and monotonic >= self._next_try and self._due(monotonic):
            self._hand_over(now)
            self._wait_for_batch(GRACE_S)
            news |= self._take_in(now, monotonic)
        if self._under_way is None and not self._ledger.changed:
            self._call_back(self._when_written)
            self._when_written = []
        self._ahead = self._failing or self._overdue or (self._ahead and self._holds_news())
        return news

    def finish(self, now: float, monotonic: float, within_s: float) -> bool:
        """Write what is left, waiting at most twice `within_s`; return whether all of it is durable."""
        self._wait_for_batch(within_s)
        self._take_in(now, monotonic)
        if self._under_way is None:
            self._hand_over(now)
            self._wait_for_batch(within_s)
            self._take_in(now, monotonic)
        return self._under_way is None and not self._failing

    def _holds_news(self) -> bool:
        """Return whether something worth publishing is not durable yet."""
        return self._ledger.urgent or (self._under_way is not None and self._under_way[0].urgent)

    def _due(self, monotonic: float) -> bool:
        if (
            self._ledger.urgent
            or self._proofs
            or self._gpus != self._stored_gpus
            or self._committer.corrupt is not None
        ):
            return True
        if self._ledger.changed:
            if self._waiting_since is None:
                self._waiting_since = monotonic
            return monotonic - self._waiting_since >= REPEATS_WAIT_S
        idle_s = monotonic - self._written_at
        return idle_s >= (CURSOR_WAIT_S if self._cursor != self._stored_cursor else PROVE_WRITABLE_S)

    def _hand_over(self, now: float) -> None:
        corrupt = self._committer.corrupt
        if corrupt is not None and corrupt is not self._replaced:
            self._say_corrupt(str(corrupt), now)
            self._ledger.forget_written()
            self._stored_gpus = ()
        batch = CommitBatch(
            active=self._ledger.active,
            findings=tuple(self._ledger.changed.values()),
            cursor=self._cursor,
            gpus=self._gpus if self._gpus != self._stored_gpus else None,
            proofs=tuple(self._proofs),
            when_written=tuple(self._when_written),
            urgent=self._ledger.urgent or bool(self._proofs),
            renews=corrupt is not None,
        )
        self._ledger.mark_submitted()
        self._proofs, self._when_written, self._waiting_since = [], [], None
        self._under_way = (batch, self._committer.submit(lambda database: self._write(database, batch, now)))

    def _wait_for_batch(self, within_s: float) -> None:
        """Wait a moment for the batch. If that is not enough, `wake` is called at the end of the write."""
        if self._under_way is None:
            return
        future = self._under_way[1]
        try:
            future.exception(within_s)
        except FutureTimeoutError:
            future.add_done_callback(lambda _: self._wake())

    def _write(self, database: NodeDatabase, batch: CommitBatch, now: float) -> int:
        """Write all of the batch or nothing, in the writer's thread; return the number of the newest change."""
        if batch.renews and self._committer.corrupt is not None:
            self._replace(database, self._committer.corrupt, now)
        with database.transaction():
            lifted = any(proof.whole_node for proof in batch.proofs)
            stored = database.commit(batch.findings, batch.cursor, lift_condemned=lifted)
            if batch.gpus is not None:
                database.expect_gpus(batch.gpus)
            for proof in batch.proofs:
                self._orders.write_answer(database, proof.answer)
            if not batch.findings:
                database.put("written_at", now)  # a write without content would verify nothing
        self._waiting.add(stored, database)
        if batch.proofs or batch.renews:
            self._orders.read(database, self._waiting.newest)
        return self._waiting.newest

    def _replace(self, database: NodeDatabase, corrupt: DatabaseCorrupt, now: float) -> None:
        """Continue with a fresh database that holds the open orders. A later batch does what could not be done now.

        `corrupt` stays set until the orders are in it: until then they exist only in memory.
        """
        if self._replaced is not corrupt:
            database.renew(now, str(corrupt))
            self._waiting.begin_anew(database)
            self._replaced = corrupt
        with database.transaction():
            self._orders.restore(database)
        self._committer.corrupt = self._replaced = None

    def _take_in(self, now: float, monotonic: float) -> bool:
        """Process the end of the batch, if it has ended; return whether there is something to publish."""
        if self._under_way is None or not self._under_way[1].done():
            return False
        (batch, future), self._under_way = self._under_way, None
        error = future.exception()
        if error is not None:
            self._take_back(batch)
            self._judge_error(error, batch, now, monotonic)
            return True
        self._stored_cursor, self._written_at = batch.cursor, monotonic
        self._stored_gpus = batch.gpus if batch.gpus is not None else self._stored_gpus
        self._shown, self.newest, self._failing = batch.active, future.result(), False
        self._call_back(batch.when_written)
        self._clear(["unwritable"], now)
        self._say_dropped(now)
        return batch.urgent

    def _take_back(self, batch: CommitBatch) -> None:
        self._ledger.take_back(batch.findings, urgent=batch.urgent)
        self._proofs = [*batch.proofs, *self._proofs]
        self._when_written = [*batch.when_written, *self._when_written]

    def _judge_error(self, error: BaseException, batch: CommitBatch, now: float, monotonic: float) -> None:
        """Keep everything in memory, report the error, and retry: the cursor has not moved, so a crash loses nothing."""
        if isinstance(error, DatabaseCorrupt) and not batch.renews:
            self._wake()  # the next round replaces the database
            return
        if not isinstance(error, (DatabaseFull, DatabaseCorrupt)):
            raise error
        self._next_try = monotonic + RETRY_S
        self._failing = True
        _log.error("findings are held in memory: %s", error)
        self._say("unwritable", Severity.ERROR, f"findings are held in memory only: {error}", now)

    def _judge_overdue(self, now: float, monotonic: float) -> bool:
        """Detect a hanging disk by time, as it gives no error. Return whether there is something to publish."""
        waited_s = self._committer.waited_s(monotonic)
        if waited_s < OVERDUE_S:
            if self._overdue:
                _log.warning("the state disk has finished the overdue write")
                self._clear([code for code, _ in _LATE], now)
            self._overdue = False
            return False
        path = self._committer.database.path
        for code, limit_s in _LATE:
            if waited_s >= limit_s:
                words = f"a write to {path} has not ended within {limit_s:g} s; findings are held in memory only"
                words += "; check the kernel log for I/O errors and hung tasks, and the disk"
                self._say(code, Severity.ERROR, words, now)
        if not self._overdue:
            _log.error("%s: a write has not ended within %g s; findings are held in memory only", path, OVERDUE_S)
        self._overdue = True
        told, self._told = self._told, {(finding.id, finding.severity) for finding in self._ledger.active}
        return told != self._told

    def _call_back(self, calls: Iterable[Callable[[], None]]) -> None:
        for call in calls:
            call()

    def _say(self, code: str, severity: Severity, summary: str, now: float, **more: Any) -> None:
        fact = Raise(check="outbox", code=code, component=_AGENT, severity=severity, summary=summary, at=now, **more)
        self._ledger.apply([fact])

    def _clear(self, codes: Iterable[str], now: float) -> None:
        self._ledger.apply(Clear(check="outbox", code=code, component=_AGENT, at=now, by=_WRITTEN) for code in codes)

    def _say_dropped(self, now: float) -> None:
        """Raise a finding that changes were lost, so that the history does not look complete."""
        for code, lost, words in (
            ("dropped", self._committer.database.dropped, "changes of cleared findings were dropped for lack of room"),
            ("rejected", self._waiting.rejected, "changes were set aside, because the remediator rejects them"),
        ):
            if lost > self._lost.get(code, 0):
                self._lost[code] = lost
                self._say(code, Severity.WARNING, words, now, event=True, evidence={"changes": lost})

    def _say_corrupt(self, problem: str, now: float) -> None:
        """Report lost history: it may have held a fault, or the condemned mark, so only a preflight clears this."""
        _log.error("%s", problem)
        words = f"the stored history of this node was lost: {problem}"[:300]
        self._say("corrupt", Severity.ERROR, words, now, event=True)

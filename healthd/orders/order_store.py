"""Orders in the node's database: durable before they start, kept until the controller has received their result.

Reads never wait for a disk: the last stored state is in memory. A hung disk delays programs and reboots, which must not
start twice. It does not delay trainer orders, which are idempotent and which ranks wait for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import msgspec

from healthd.storage.database_writer import CommitOverdue, DatabaseWriter
from healthd.storage.history_marker import Condemnation
from healthd.storage.node_database import DatabaseFull, NodeDatabase
from vocabulary.order import TRAINER_ORDERS, Order, OrderState, OrderUpdate

ENDED_KEPT = 1000  # remembered, so that a repeated order is not performed again

Open = tuple[Order, OrderUpdate]

_log = logging.getLogger("healthd.orders")


class OrderStore:
    """The orders of this node. Callable from any thread; `condemned` is as last stored.

    `on_late` is called when a write that timed out has ended: other orders may be open now.
    """

    def __init__(self, committer: DatabaseWriter, node: str) -> None:
        self._committer = committer
        self._node = node
        self._lock = threading.Lock()  # held only for operations in memory
        self._open: tuple[Open, ...] = ()
        self._unsent: tuple[OrderUpdate, ...] = ()
        self._proven_by = 0  # the newest change when a verification was last stored
        self._accepted: dict[str, Open] = {}  # trainer orders on their way to the disk
        self._answers: dict[str, OrderUpdate] = {}  # the last to each order, until it is durable
        self._failed: set[str] = set()  # orders whose last answer the disk did not accept
        self._sent: dict[str, OrderUpdate] = {}  # received by the controller, on their way to the disk
        self.condemned: Condemnation | None = None
        self.on_late: Callable[[], None] = lambda: None
        self.read(committer.database)

    def receive(self, order: Order, at: float) -> bool:
        """Store a new order, and the condemned mark if it sets one. Return False for a known order.

        A known order that has ended and comes again ended without the controller's knowledge: its answer is sent again.

        Raises:
            DatabaseFull, DatabaseCorrupt: it could not be stored, or not in time; the controller sends it again.
        """
        received = OrderUpdate(id=order.id, state=OrderState.RECEIVED, at=at)
        future = self._committer.submit(partial(self._receive, order=order, answer=received))
        try:
            return self._committer.wait(future)
        except CommitOverdue:
            future.add_done_callback(lambda _: self.on_late())
            if order.kind not in TRAINER_ORDERS:
                raise
        with self._lock:
            new = order.id not in self._accepted
            self._accepted[order.id] = (order, received)
        future.add_done_callback(lambda _: self._landed(self._accepted, order.id))
        return new

    def answer(self, answer: OrderUpdate) -> None:
        """Record an order's progress. What comes after a final state is ignored.

        Raises:
            DatabaseFull, DatabaseCorrupt: it could not be stored. It is kept: see `waits_for_disk` and
            `store_failed_answers`.
                An answer that is merely late raises nothing.
        """
        future = self._submit_answer(answer)
        try:
            self._committer.wait(future)
        except CommitOverdue:
            future.add_done_callback(lambda _: self.on_late())

    def waits_for_disk(self, order_id: str) -> bool:
        """Return whether an order must pause, because its last answer is not durable yet."""
        with self._lock:
            return order_id in self._answers and any(
                order.id == order_id and order.kind not in TRAINER_ORDERS for order, _ in self._open
            )

    @property
    def has_failed_answers(self) -> bool:
        """Return whether the disk rejected an answer, so that `store_failed_answers` must be called."""
        return bool(self._failed)

    def store_failed_answers(self) -> None:
        """Retry the answers that the disk rejected. Never waits; `on_late` is called at the end of each write."""
        with self._lock:
            failed = [self._answers[order_id] for order_id in self._failed]
        for answer in failed:
            self._submit_answer(answer).add_done_callback(lambda _: self.on_late())

    def open(self) -> list[Open]:
        """Return the orders that have not ended, oldest first, with their progress."""
        with self._lock:
            stored = {order.id: (order, answer) for order, answer in self._open}
            known = self._accepted | stored
            latest = [(order, self._answers.get(order.id, answer)) for order, answer in known.values()]
        return [(order, answer) for order, answer in latest if not answer.state.final]

    def unsent(self, newest_change: int) -> list[OrderUpdate]:
        """Return durable answers not yet delivered, only the last one per order, as it includes the others.

        Return None while one of them concerns a verification that cleared findings by a change newer than
        `newest_change`.
        """
        with self._lock:
            if self._proven_by > newest_change:
                return []
            return [answer for answer in self._unsent if self._sent.get(answer.id) != answer]

    def mark_sent(self, answer: OrderUpdate) -> None:
        """Record that the controller has received this answer."""
        with self._lock:
            self._sent[answer.id] = answer
        future = self._committer.submit(partial(self._store_sent, answer=answer))
        future.add_done_callback(lambda _: self._landed(self._sent, answer.id))

    # -- in the committer's thread -------------------------------------------------------------------------------------

    def write_answer(self, database: NodeDatabase, answer: OrderUpdate) -> None:
        """Store an answer within the caller's transaction; `read` must follow."""
        database.rows(
            "update orders set state = ?, final = ?, sent = 0, at = ?, answer = ? where id = ? and final = 0",
            answer.state.value,
            answer.state.final,
            answer.at,
            msgspec.json.encode(answer),
            answer.id,
        )

    def read(self, database: NodeDatabase, proven_by: int | None = None) -> None:
        """Load the database's state. After a verification `proven_by` is the number of the newest change."""
        found: list[Open] = []
        for body, answer in database.rows("select body, answer from orders where final = 0 order by at"):
            update = msgspec.json.decode(answer, type=OrderUpdate)
            try:
                found.append((msgspec.json.decode(body, type=Order), update))
            except msgspec.ValidationError as error:  # stored by a newer healthd before a downgrade
                why = f"this healthd is too old for the order: {error}"
                with database.transaction():
                    self.write_answer(database, msgspec.structs.replace(update, state=OrderState.REFUSED, detail=why))
        rows = database.rows("select answer from orders where sent = 0 order by at")
        unsent = tuple(msgspec.json.decode(answer, type=OrderUpdate) for (answer,) in rows)
        condemned = database.condemned()
        with self._lock:
            self._open, self._unsent, self.condemned = tuple(found), unsent, condemned
            self._proven_by = self._proven_by if proven_by is None else proven_by

    def restore(self, database: NodeDatabase) -> None:
        """Write the state in memory to a fresh database, within the caller's transaction."""
        unsent = {answer.id: answer for answer in self._unsent}
        bodies = {order.id: (msgspec.json.encode(order), answer) for order, answer in self._open}
        for order_id, answer in {**{order_id: answer for order_id, (_, answer) in bodies.items()}, **unsent}.items():
            body = bodies[order_id][0] if order_id in bodies else b""
            self._insert(database, body, answer, sent=order_id not in unsent)
        if self.condemned is not None:
            database.condemn(self.condemned)

    def _receive(self, database: NodeDatabase, order: Order, answer: OrderUpdate) -> bool:
        self._refuse_corrupt(database)
        with database.transaction():
            known = bool(database.rows("select 1 from orders where id = ?", order.id))
            if known:
                database.rows("update orders set sent = 0 where id = ? and final = 1", order.id)
            else:
                self._insert(database, msgspec.json.encode(order), answer, sent=False)
                if self._node in order.condemned:
                    database.condemn(Condemnation(order.id, answer.at, order.reason))
                database.rows(
                    "delete from orders where id in"
                    " (select id from orders where final = 1 and sent = 1 order by at desc limit -1 offset ?)",
                    ENDED_KEPT,
                )
        self.read(database)
        return not known

    def _refuse_corrupt(self, database: NodeDatabase) -> None:
        """Refuse while open orders exist only in memory, as `read` would lose them.

        Raises:
            DatabaseFull: the database is damaged, and the recorder has not replaced it yet.
        """
        if self._committer.corrupt is not None:
            raise DatabaseFull(f"{database.path}: the damaged database has not been replaced yet; check the disk")

    def _insert(self, database: NodeDatabase, body: bytes, answer: OrderUpdate, *, sent: bool) -> None:
        values = (answer.id, answer.state.value, answer.state.final, sent, answer.at, body, msgspec.json.encode(answer))
        database.rows("insert into orders values (?, ?, ?, ?, ?, ?, ?)", *values)

    def _store_answer(self, database: NodeDatabase, answer: OrderUpdate) -> None:
        self._refuse_corrupt(database)
        with database.transaction():
            self.write_answer(database, answer)
        self.read(database)

    def _store_sent(self, database: NodeDatabase, answer: OrderUpdate) -> None:
        self._refuse_corrupt(database)
        with database.transaction():
            database.rows(
                "update orders set sent = 1 where id = ? and answer = ?", answer.id, msgspec.json.encode(answer)
            )
        self.read(database)

    def _submit_answer(self, answer: OrderUpdate) -> Future[None]:
        with self._lock:
            self._answers[answer.id] = answer
            self._failed.discard(answer.id)
        future = self._committer.submit(partial(self._store_answer, answer=answer))
        future.add_done_callback(lambda done: self._answered(answer, done.exception()))
        return future

    def _answered(self, answer: OrderUpdate, error: BaseException | None) -> None:
        """Handle the end of a write.

        A failed answer is kept: otherwise a reboot order would start again after every boot.
        """
        with self._lock:
            if self._answers.get(answer.id) is not answer:
                return  # a newer one is in progress
            if error is None:
                del self._answers[answer.id]
                return
            self._failed.add(answer.id)
        _log.warning("order %s waits: its answer %s is not stored: %s", answer.id, answer.state.value, error)

    def _landed(self, waiting: dict[str, Open] | dict[str, OrderUpdate], order_id: str) -> None:
        with self._lock:
            waiting.pop(order_id, None)

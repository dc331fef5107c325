"""The one thread that decides: inputs from a queue, in batches; decide, commit, publish, and only then let effects out.

A caller may wait for its input to be durable (a node's acknowledgement does). When the database fails, the batch is
tried again until it is written: nothing is acknowledged and nothing acted upon in the meantime, `trouble` says why, and
nodes are asked to wait with what is new (`overload`); what has been taken stays in its order.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from remediator.decide.policy import Policy
from remediator.decide.settings import Settings
from remediator.model.hold import NodeHold
from remediator.model.inputs import AnyInput, FindingsReported, PolicyChanged, Tick
from remediator.model.records import Action, Incident, NodeRecord
from remediator.pipeline import handle
from remediator.state import ClusterState
from remediator.store.journal import Journal, StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.order import Order

log = logging.getLogger(__name__)

QUEUE_MAX = 100_000  # inputs, of whatever kind
WAITING_MAX = 50_000  # findings and other pieces of news not yet written, before nodes are asked to wait
BATCH_MAX = 256
TICK_S = 0.25
COMMIT_RETRY_S, COMMIT_RETRY_MAX_S = 0.2, 5.0


class Snapshot(msgspec.Struct, frozen=True):
    """The committed state, for readers; dictionaries are never changed after publication."""

    nodes: dict[str, NodeRecord]
    findings: dict[str, Finding]
    incidents: dict[str, Incident]
    actions: dict[str, Action]
    holds: dict[str, NodeHold]
    ordered: dict[str, list[Action]] = {}  # open orders by node, so that thousands of polls need not search for theirs

    def orders_for(self, node: str, now: float) -> tuple[Order, ...]:
        """Open orders of a node, oldest first."""
        actions = [a for a in self.ordered.get(node, ()) if now < a.deadline]
        return tuple(a.order for a in sorted(actions, key=lambda a: (a.planned_at, a.id)) if a.order)


class Engine:
    """Owns the state. Everything else submits inputs and reads snapshots."""

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        clock: Clock,
        published: Callable[[Snapshot], None],
        ended: Callable[[str], None] = lambda _why: None,
        idle: Callable[[int], None] = lambda _epoch: None,
    ) -> None:
        """Take the lead and load the state. `ended` is told why no more decisions are made, unless that was asked for.

        `idle` is called from time to time with the epoch, when nothing waits; it may write a little.
        """
        self.settings = settings
        self.epoch = journal.lead()
        self._trouble = ""
        self._ended = ended
        self._idle = idle
        self._batches = 0
        self._in_hand: list[tuple[AnyInput, Future[None] | None]] = []
        self._waiting = 0
        self._counting = threading.Lock()
        self._journal = journal
        self._clock = clock
        self._published = published
        self._state: ClusterState = journal.load()
        self._queue: queue.Queue[tuple[AnyInput, Future[None] | None] | None] = queue.Queue(QUEUE_MAX)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._policies: dict[str, Policy] = {}
        self.change_policy(settings.policy)
        self.snapshot = self._snapshot()

    def start(self) -> None:
        """Begin deciding; what was planned and not done before a crash is published first."""
        self._published(self.snapshot)
        self._thread.start()

    def stop(self) -> None:
        """Finish the batch in hand and stop."""
        self._stopping.set()
        self._queue.put(None)
        self._thread.join(timeout=10)

    @property
    def alive(self) -> bool:
        """Whether decisions are being made."""
        return self._thread.is_alive()

    @property
    def trouble(self) -> str:
        """Why nothing can be written or begun at the moment, for people; empty when all is well."""
        return self._trouble or self._journal.leadership.trouble

    def may_act(self) -> bool:
        """Whether an outside effect may begin now: the lead was confirmed just now, and the term is not over."""
        return self.alive and self._journal.leadership.may_act()

    def overload(self) -> str:
        """Why a node should come again later with what is new; empty when it may hand it in now."""
        if self._trouble:
            return self._trouble
        return f"{self._waiting} pieces of news wait to be written" if self._waiting > WAITING_MAX else ""

    def change_policy(self, policy: Policy) -> None:
        """Let another policy decide from the next input on. Callable from any thread."""
        self._policies[policy.digest] = policy
        now, mode = self._clock.wall(), self.settings.mode
        self._put(PolicyChanged(at=now, digest=policy.digest, source=policy.source, mode=mode), None)

    def submit(self, item: AnyInput) -> None:
        """Hand in an input. Raises queue.Full when the centre cannot keep up: the caller must tell its peer to wait."""
        self._put(item, None)

    def submit_durably(self, item: AnyInput) -> Future[None]:
        """Hand in an input; the future is done once it is on the disk."""
        done: Future[None] = Future()
        self._put(item, done)
        return done

    def _put(self, item: AnyInput, done: Future[None] | None) -> None:
        self._queue.put_nowait((item, done))
        self._count(_weight(item))

    def _count(self, more: int) -> None:
        with self._counting:
            self._waiting += more

    def _run(self) -> None:
        why = "deciding failed; the log says how"
        try:
            while not self._stopping.is_set():
                self._turn()
        except StoreError as error:
            why = str(error)
        except Exception:
            log.exception("the engine has stopped")
        finally:
            if not self._stopping.is_set():
                self._trouble = why
                log.critical("no more decisions are made: %s", why)
                self._let_go(why)
                self._ended(why)

    def _let_go(self, why: str) -> None:
        """Whoever waits for something to be written hears that it will not be."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._in_hand += filter(None, (self._queue.get_nowait(),))
        for _, done in self._in_hand:
            if done is not None and not done.done():
                done.set_exception(StoreError(why))

    def _turn(self) -> None:
        batch = self._in_hand = self._next_batch()
        for item, _ in batch:
            self._handle(item)
        if not self._commit([item for item, _ in batch]):
            return
        self._count(-sum(_weight(item) for item, _ in batch[:-1]))
        for _, done in batch:
            if done is not None:
                done.set_result(None)
        if self._queue.empty():
            self._tidy()

    def _tidy(self) -> None:
        """What may wait. It is bounded, and a failure of it is no reason to decide less."""
        try:
            self._idle(self.epoch)
        except SQLAlchemyError as error:
            log.warning("tidying the database failed, it is tried again later: %s", error)

    def _next_batch(self) -> list[tuple[AnyInput, Future[None] | None]]:
        batch: list[tuple[AnyInput, Future[None] | None]] = []
        try:
            first = self._queue.get(timeout=TICK_S)
            while first is not None:
                batch.append(first)
                if len(batch) >= BATCH_MAX:
                    break
                first = self._queue.get_nowait()
        except queue.Empty:
            pass
        batch.append((Tick(at=self._clock.wall()), None))
        return batch

    def _handle(self, item: AnyInput) -> None:
        if isinstance(item, PolicyChanged):
            self.settings = msgspec.structs.replace(self.settings, policy=self._policies[item.digest])
        try:
            handle(self._state, item, self.settings)
        except Exception as error:
            # A bug in a decision must not stop the centre; the input is in the journal and can be replayed.
            log.exception(
                "deciding on %s failed; this is a bug, please report it with the journal", type(item).__name__
            )
            self._state.note(item.at, "bug", f"deciding on {type(item).__name__} failed: {error!r}")

    def _commit(self, items: list[AnyInput]) -> bool:
        """Write the batch, however long it takes. False when we are told to stop.

        Raises:
            StoreError: another leader has taken over.
        """
        changes = self._state.take_changes()
        worth_keeping = [item for item in items if changes or not isinstance(item, Tick)]
        if not worth_keeping:
            return True
        self._batches += 1
        pause = COMMIT_RETRY_S
        while True:
            try:
                self._journal.commit(worth_keeping, changes, self.epoch, self._batches)
                break
            except SQLAlchemyError as error:
                self._trouble = (
                    f"the database cannot be written: {error}; nothing is acknowledged or acted upon until it can"
                )
                log.error("%s", self._trouble)
                if self._stopping.wait(pause):
                    return False
                pause = min(2 * pause, COMMIT_RETRY_MAX_S)
        self._trouble = ""
        self.snapshot = self._snapshot()
        self._published(self.snapshot)
        return True

    def _snapshot(self) -> Snapshot:
        state = self._state
        parts: dict[str, Any] = {n: dict(getattr(state, n)) for n in Snapshot.__struct_fields__ if n != "ordered"}
        ordered: dict[str, list[Action]] = {}
        for action in state.actions.values():
            if action.order is not None and not action.state.final:
                ordered.setdefault(action.node, []).append(action)
        return Snapshot(**parts, ordered=ordered)


def _weight(item: AnyInput) -> int:
    """About how much an input weighs: pieces of news in it."""
    return 1 + (len(item.changes) + len(item.active or ()) if isinstance(item, FindingsReported) else 0)

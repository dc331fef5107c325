"""The one thread that decides: inputs from a queue, in batches; decide, commit, publish, and only then let effects out.

A caller may wait for its input to be durable (a node's acknowledgement does). When the database fails, the batch is
tried again until it is written: nothing is acknowledged and nothing acted upon in the meantime, and `trouble` says why.
"""

from __future__ import annotations

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
from remediator.model.inputs import AnyInput, PolicyChanged, Tick
from remediator.model.records import Action, Incident, NodeRecord
from remediator.pipeline import handle
from remediator.state import ClusterState
from remediator.store.journal import Journal, StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.order import Order

log = logging.getLogger(__name__)

QUEUE_MAX = 100_000
BATCH_MAX = 256
TICK_S = 0.25
COMMIT_RETRY_S = 1.0


class Snapshot(msgspec.Struct, frozen=True):
    """The committed state, for readers; dictionaries are never changed after publication."""

    nodes: dict[str, NodeRecord]
    findings: dict[str, Finding]
    incidents: dict[str, Incident]
    actions: dict[str, Action]
    holds: dict[str, NodeHold]

    def orders_for(self, node: str, now: float) -> tuple[Order, ...]:
        """Open orders of a node, oldest first."""
        actions = [
            a for a in self.actions.values() if a.node == node and a.order and not a.state.final and now < a.deadline
        ]
        return tuple(a.order for a in sorted(actions, key=lambda a: (a.planned_at, a.id)) if a.order)


class Engine:
    """Owns the state. Everything else submits inputs and reads snapshots."""

    def __init__(
        self, journal: Journal, settings: Settings, clock: Clock, published: Callable[[Snapshot], None]
    ) -> None:
        self.settings = settings
        self.trouble = ""
        self.epoch = journal.lead()
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

    def change_policy(self, policy: Policy) -> None:
        """Let another policy decide from the next input on. Callable from any thread."""
        self._policies[policy.digest] = policy
        now, mode = self._clock.wall(), self.settings.mode
        self._queue.put_nowait((PolicyChanged(at=now, digest=policy.digest, source=policy.source, mode=mode), None))

    def submit(self, item: AnyInput) -> None:
        """Hand in an input. Raises queue.Full when the centre cannot keep up: the caller must tell its peer to wait."""
        self._queue.put_nowait((item, None))

    def submit_durably(self, item: AnyInput) -> Future[None]:
        """Hand in an input; the future is done once it is on the disk."""
        done: Future[None] = Future()
        self._queue.put_nowait((item, done))
        return done

    def _run(self) -> None:
        while not self._stopping.is_set():
            batch = self._next_batch()
            for item, _ in batch:
                self._handle(item)
            if not self._commit([item for item, _ in batch]):
                return
            for _, done in batch:
                if done is not None:
                    done.set_result(None)

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
        """Write the batch, however long it takes. False when another leader has taken over or we are told to stop."""
        changes = self._state.take_changes()
        worth_keeping = [item for item in items if changes or not isinstance(item, Tick)]
        if not worth_keeping:
            return True
        while True:
            try:
                self._journal.commit(worth_keeping, changes, self.epoch)
                break
            except StoreError as error:
                self.trouble = str(error)
                log.critical("%s", error)
                return False
            except SQLAlchemyError as error:
                self.trouble = (
                    f"the database cannot be written: {error}; nothing is acknowledged or acted upon until it can"
                )
                log.error("%s", self.trouble)
                if self._stopping.wait(COMMIT_RETRY_S):
                    return False
        self.trouble = ""
        self.snapshot = self._snapshot()
        self._published(self.snapshot)
        return True

    def _snapshot(self) -> Snapshot:
        state = self._state
        parts: dict[str, Any] = {name: dict(getattr(state, name)) for name in Snapshot.__struct_fields__}
        return Snapshot(**parts)

"""The one thread that decides: inputs from a fair queue, in batches; decide, commit, publish, and only then let effects out.

A caller may wait for its input to be durable (a node's acknowledgement does). While the database fails or hangs, nothing is
acknowledged and nothing acted upon, `trouble` says why, and nodes are asked to wait with what is new (`overload`); what has
been taken stays in its order.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, InvalidStateError
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from sqlalchemy.exc import SQLAlchemyError

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.mode_stop import is_action_withheld
from remediator.decisions.policy import Policy
from remediator.engine.batch_writer import BatchWriter, WriterStopped
from remediator.engine.fair_queue import FairQueue, QueuedItem
from remediator.model.journal_records import Action, Incident, NodeRecord
from remediator.model.override_records import Standing
from remediator.model.pipeline_inputs import (
    AnyInput,
    FindingsReported,
    InventoryChanged,
    OrderAnswered,
    PlacementChanged,
    PolicyChanged,
    Tick,
)
from remediator.model.scheduler_hold import NodeHold
from remediator.store.journal import Journal, StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.order import Order

log = logging.getLogger(__name__)

QUEUE_MAX = 100_000  # inputs, of whatever kind
WAITING_MAX = 50_000  # findings and other pieces of news not yet written, before nodes are asked to wait
BATCH_MAX = 256
BATCH_PIECES = (
    1000  # pieces of news after which a batch takes in no more: so long others wait for one who has much to tell
)
PLACEMENT_WEIGHS = 10  # pieces of news: every open incident is looked at again
TICK_S = 0.25
STUCK_S = 10.0  # a batch that takes longer is a trouble that people must see
STOP_S = 10.0

_Handed = tuple[AnyInput, Future[None] | None]
_COPIED = ("nodes", "findings", "incidents", "actions", "holds", "standing")


class StateSnapshot(msgspec.Struct, frozen=True):
    """The committed state, for readers; dictionaries are never changed after publication."""

    nodes: dict[str, NodeRecord]
    findings: dict[str, Finding]
    incidents: dict[str, Incident]
    actions: dict[str, Action]
    holds: dict[str, NodeHold]
    ordered: dict[str, list[Action]] = {}  # open orders by node, so that thousands of polls need not search for theirs
    isolated_at: tuple[float, ...] = ()  # of the last day, oldest first, UTC s
    standing: dict[str, Standing] = {}
    unheard: dict[str, Action] = {}  # given up by us; whoever has it may be at it still
    failed: dict[str, int] = {}  # deeds that failed one after another, by verb

    def orders_for(self, node: str, now: float, known: Collection[str] = ()) -> tuple[Order, ...]:
        """Open orders of a node, oldest first; of what a person's stop withholds, those that it has already, by id."""
        open_ = [a for a in self.ordered.get(node, ()) if now < a.deadline]
        actions = [a for a in open_ if a.id in known or not is_action_withheld(self.standing, a)]
        return tuple(a.order for a in sorted(actions, key=lambda a: (a.planned_at, a.id)) if a.order)


class DecisionEngine:
    """Owns the state. Everything else submits inputs and reads snapshots."""

    def __init__(
        self,
        journal: Journal,
        settings: DecisionSettings,
        clock: Clock,
        published: Callable[[StateSnapshot], None],
        ended: Callable[[str], None] = lambda _why: None,
        idle: Callable[[int], None] = lambda _epoch: None,
    ) -> None:
        """Take the lead and load the state. `ended` is told why no more decisions are made, unless that was asked for.

        `idle` is called from time to time with the epoch, when nothing waits; it may write a little.
        """
        self.epoch = journal.lead()
        self._over = ""
        self._ended = ended
        self._idle = idle
        self._in_hand: list[_Handed] = []
        self._begun: float | None = None  # when the batch in hand was
        self._waiting = 0
        self._counting = threading.Lock()
        self._journal = journal
        self._clock = clock
        self._published = published
        self._queue: FairQueue[_Handed] = FairQueue(QUEUE_MAX)
        self._asked = False  # to stop
        self._stopping = threading.Event()
        self._batches = BatchWriter(journal, self.epoch, settings, self._stopping)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.change_policy(settings.policy)
        self.snapshot = self._snapshot()

    def start(self) -> None:
        """Begin deciding; what was planned and not done before a crash is published first."""
        self._published(self.snapshot)
        self._thread.start()

    def stop(self) -> None:
        """Write down what was handed in until now, and stop. Who hands in what cannot be written any more hears so."""
        self._asked = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=STOP_S)
        self._thread.join(timeout=STOP_S)
        self._stopping.set()
        self._thread.join(timeout=STOP_S)

    @property
    def settings(self) -> DecisionSettings:
        """What decides now."""
        return self._batches.settings

    @property
    def alive(self) -> bool:
        """Whether decisions are being made."""
        return self._thread.is_alive()

    @property
    def batch_age_s(self) -> float:
        """For how long the batch in hand has been decided upon and written; 0 between two."""
        begun = self._begun
        return 0.0 if begun is None else max(0.0, self._clock.monotonic() - begun)

    @property
    def set_aside(self) -> int:
        """Inputs that could not be written and wait for people to look at them."""
        return self._batches.set_aside

    @property
    def counters(self) -> CollectorRegistry:
        """What has happened in this term, for `/metrics`."""
        return self._batches.tally.registry

    @property
    def waiting(self) -> int:
        """Pieces of news that were handed in and are not written yet."""
        return self._waiting

    @property
    def trouble(self) -> str:
        """Why nothing can be written or begun at the moment, for people; empty when all is well."""
        return self._trouble or self._journal.leadership.trouble

    @property
    def _trouble(self) -> str:
        age_s = self.batch_age_s
        stuck = (
            f"a batch has waited {age_s:.0f} s to be written: the database does not answer" if age_s > STUCK_S else ""
        )
        return self._over or self._batches.trouble or stuck

    def may_act(self) -> bool:
        """Whether an outside effect may begin now: the lead was confirmed just now, and the term is not over."""
        return self.alive and self._journal.leadership.may_act()

    def overload(self) -> str:
        """Why a node should come again later with what is new; empty when it may hand it in now."""
        if trouble := self._trouble:
            return trouble
        return f"{self._waiting} pieces of news wait to be written" if self._waiting > WAITING_MAX else ""

    def change_policy(self, policy: Policy) -> None:
        """Let another policy decide from the next input on. Callable from any thread."""
        self._batches.policies[policy.digest] = policy
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
        weight = input_weight(item)
        self._queue.put_nowait(QueuedItem((item, done), _input_lane(item), weight))
        self._count(weight)

    def _count(self, more: int) -> None:
        with self._counting:
            self._waiting += more

    def _run(self) -> None:
        why = "deciding failed; the log says how"
        try:
            while self._turn():
                pass
            why = "this remediator stops"
        except WriterStopped:
            why = "this remediator stops, and the database cannot be written"
        except StoreError as error:
            why = str(error)
        except Exception:
            log.exception("the engine has stopped")
        finally:
            try:
                if not self._asked:
                    self._over = why
                    log.critical("no more decisions are made: %s", why)
                self._let_go(why)
            finally:
                if not self._asked:
                    self._ended(why)

    def _let_go(self, why: str) -> None:
        """Whoever waits for something to be written hears that it will not be."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._in_hand += [handed.what for handed in (self._queue.get_nowait(),) if handed is not None]
        for _, done in self._in_hand:
            if done is not None and not done.done():
                done.set_exception(StoreError(why))

    def _turn(self) -> bool:
        """One batch. False when it was the last."""
        batch, last = self._next_batch()
        self._in_hand, self._begun = batch, self._clock.monotonic()
        if self._batches.write([item for item, _ in batch]):
            self.snapshot = self._snapshot()
            self._published(self.snapshot)
        self._begun = None
        self._count(-sum(input_weight(item) for item, _ in batch[:-1]))
        for _, done in batch:
            if done is not None:
                with contextlib.suppress(InvalidStateError):  # it has given up
                    done.set_result(None)
        if not last and self._queue.empty():
            self._tidy()
        return not last

    def _tidy(self) -> None:
        """What may wait. It is bounded, and a failure of it is no reason to decide less."""
        try:
            self._idle(self.epoch)
        except SQLAlchemyError as error:
            log.warning("tidying the database failed, it is tried again later: %s", error)

    def _next_batch(self) -> tuple[list[_Handed], bool]:
        """What has been handed in, and the time; and whether nothing of before `stop` is left."""
        batch: list[_Handed] = []
        last, pieces = False, 0
        with contextlib.suppress(queue.Empty):
            handed = self._queue.get(timeout=TICK_S)
            while handed is not None:
                batch.append(handed.what)
                pieces += handed.weight
                if len(batch) >= BATCH_MAX or pieces >= BATCH_PIECES:
                    break
                handed = self._queue.get_nowait()
            last = handed is None
        batch.append((Tick(at=self._clock.wall()), None))
        return batch, last

    def _snapshot(self) -> StateSnapshot:
        state = self._batches.state
        parts: dict[str, Any] = {name: dict(getattr(state, name)) for name in _COPIED}
        ordered: dict[str, list[Action]] = {}
        for action in state.actions.values():
            if action.order is not None and not action.state.final:
                ordered.setdefault(action.node, []).append(action)
        failed = {verb: len(incidents) for verb, incidents in state.streak.failed.items()}
        given_up = dict(state.unheard.actions)
        return StateSnapshot(
            **parts, unheard=given_up, ordered=ordered, isolated_at=tuple(state.isolated_at), failed=failed
        )


def input_weight(item: AnyInput) -> int:
    """About how much an input weighs: pieces of news in it."""
    if isinstance(item, FindingsReported):
        return 1 + len(item.changes) + len(item.active or ())
    return PLACEMENT_WEIGHS + len(item.jobs) if isinstance(item, PlacementChanged) else 1


def _input_lane(item: AnyInput) -> str:
    """Whose input it is: a node's, or empty for what people, the scheduler and we ourselves say."""
    if isinstance(item, FindingsReported | PlacementChanged | InventoryChanged | OrderAnswered):
        return item.node
    return ""

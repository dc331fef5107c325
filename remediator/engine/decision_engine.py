"""The decision thread: it takes batches of inputs from a fair queue, decides, commits, publishes, and releases effects.

A caller may wait until its input is durable, as a node's acknowledgement does. While the database fails or hangs,
nothing is acknowledged and no action starts; `trouble` says why, and nodes are asked to hold back news (`overload`).
Accepted inputs keep their order.
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
from remediator.model.override_records import OperatorOverride
from remediator.model.pipeline_inputs import (
    AnyInput,
    FindingsReported,
    InventoryChanged,
    OrderAnswered,
    PlacementChanged,
    PolicyChanged,
    Tick,
)
from remediator.model.scheduler_hold import SchedulerNodeState
from remediator.store.journal import Journal, StoreError
from vocabulary.clock import Clock
from vocabulary.finding import Finding
from vocabulary.order import Order

log = logging.getLogger(__name__)

QUEUE_MAX = 100_000  # inputs of any kind
WAITING_MAX = 50_000  # findings and other news not yet written, above which nodes are asked to wait
BATCH_MAX = 256
BATCH_PIECES = 1000  # inputs after which a batch is full: others wait that long for one node with much to report
PLACEMENT_WEIGHS = 10  # in inputs: every open incident is evaluated again
TICK_S = 0.25  # between two ticks: what time alone decides is at most so late
PRESSURE_MIN = 8  # inputs in one batch, after which the next one waits for more
GATHER_S = 0.03  # how long it waits: one transaction then carries more, and an acknowledgement takes so much longer
STUCK_S = 10.0  # a slower batch is reported as trouble
STOP_S = 10.0

_Handed = tuple[AnyInput, Future[None] | None]
_COPIED = ("nodes", "findings", "incidents", "actions", "holds", "operator_overrides")


class StateSnapshot(msgspec.Struct, frozen=True):
    """The committed state, for readers. Its dictionaries never change after publication."""

    nodes: dict[str, NodeRecord]
    findings: dict[str, Finding]
    incidents: dict[str, Incident]
    actions: dict[str, Action]
    holds: dict[str, SchedulerNodeState]
    ordered: dict[str, list[Action]] = {}  # open orders by node, so that thousands of polls need no search
    isolated_at: tuple[float, ...] = ()  # of the last day, oldest first, UTC s
    operator_overrides: dict[str, OperatorOverride] = {}
    unanswered_actions: dict[str, Action] = {}  # given up, but perhaps still running on the node
    failed: dict[str, int] = {}  # failed actions in a row, by verb

    def orders_for(self, node: str, now: float, known: Collection[str] = ()) -> tuple[Order, ...]:
        """Return a node's open orders, oldest first.

        Of those that a stop withholds, only the ones it already has, by id.
        """
        open_ = [a for a in self.ordered.get(node, ()) if now < a.deadline]
        actions = [a for a in open_ if a.id in known or not is_action_withheld(self.operator_overrides, a)]
        return tuple(a.order for a in sorted(actions, key=lambda a: (a.planned_at, a.id)) if a.order)


class DecisionEngine:
    """Owns the state. Other parts submit inputs and read snapshots."""

    def __init__(
        self,
        journal: Journal,
        settings: DecisionSettings,
        clock: Clock,
        published: Callable[[StateSnapshot], None],
        ended: Callable[[str], None] = lambda _why: None,
        idle: Callable[[int], None] = lambda _epoch: None,
    ) -> None:
        """Take leadership and load the state. `ended` is called with the reason when decisions stop unexpectedly.

        `idle` is called with the epoch now and then when the queue is empty; it may write a little.
        """
        self.epoch = journal.lead()
        self._over = ""
        self._ended = ended
        self._idle = idle
        self._in_hand: list[_Handed] = []
        self._begun: float | None = None  # when the current batch began
        self._next_tick_at = float("-inf")  # monotonic
        self._pressed = False  # the last batch was large
        self._waiting = 0
        self._counting = threading.Lock()
        self._journal = journal
        self._clock = clock
        self._published = published
        self._queue: FairQueue[_Handed] = FairQueue(QUEUE_MAX)
        self._asked = False  # stop was requested
        self._stopping = threading.Event()
        self._batches = BatchWriter(journal, self.epoch, settings, self._stopping)
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.change_policy(settings.policy)
        self.snapshot = self._snapshot()

    def start(self) -> None:
        """Start deciding. Actions that were planned but not done before a crash are published first."""
        self._published(self.snapshot)
        self._thread.start()

    def stop(self) -> None:
        """Write the inputs accepted so far and stop. Callers whose input can no longer be written get an error."""
        self._asked = True
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=STOP_S)
        self._thread.join(timeout=STOP_S)
        self._stopping.set()
        self._thread.join(timeout=STOP_S)

    @property
    def settings(self) -> DecisionSettings:
        """The settings in use."""
        return self._batches.settings

    @property
    def alive(self) -> bool:
        """Whether the decision thread runs."""
        return self._thread.is_alive()

    @property
    def batch_age_s(self) -> float:
        """Seconds since the current batch began; 0 between batches."""
        begun = self._begun
        return 0.0 if begun is None else max(0.0, self._clock.monotonic() - begun)

    @property
    def set_aside(self) -> int:
        """Number of rejected inputs set aside for operators."""
        return self._batches.set_aside

    @property
    def counters(self) -> CollectorRegistry:
        """Counters of this term, for `/metrics`."""
        return self._batches.tally.registry

    @property
    def waiting(self) -> int:
        """Inputs accepted but not yet written."""
        return self._waiting

    @property
    def trouble(self) -> str:
        """Why nothing can be written or started now, for operators; empty if all is well."""
        return self._trouble or self._journal.leadership.trouble

    @property
    def _trouble(self) -> str:
        age_s = self.batch_age_s
        stuck = (
            f"a batch has waited {age_s:.0f} s to be written: the database does not answer" if age_s > STUCK_S else ""
        )
        return self._over or self._batches.trouble or stuck

    def may_act(self) -> bool:
        """Return whether an outside effect may start now: the lease was confirmed just now, and the term has not ended."""
        return self.alive and self._journal.leadership.may_act()

    def overload(self) -> str:
        """Return why a node should send its news later; empty if it may send now."""
        if trouble := self._trouble:
            return trouble
        return f"{self._waiting} inputs wait to be written" if self._waiting > WAITING_MAX else ""

    def change_policy(self, policy: Policy) -> None:
        """Use another policy from the next input on. Safe to call from any thread."""
        self._batches.policies[policy.digest] = policy
        now, mode = self._clock.wall(), self.settings.mode
        self._put(PolicyChanged(at=now, digest=policy.digest, source=policy.source, mode=mode), None)

    def submit(self, item: AnyInput) -> None:
        """Submit an input. Raises queue.Full when the controller is overloaded: the caller must ask its peer to wait."""
        self._put(item, None)

    def submit_durably(self, item: AnyInput) -> Future[None]:
        """Submit an input; the future completes when it is durable."""
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
        why = "a decision failed; see the log"
        try:
            while self._turn():
                pass
            why = "this controller is stopping"
        except WriterStopped:
            why = "this controller is stopping, and the database cannot be written"
        except StoreError as error:
            why = str(error)
        except Exception:
            log.exception("the engine has stopped")
        finally:
            try:
                if not self._asked:
                    self._over = why
                    log.critical("decisions have stopped: %s", why)
                self._let_go(why)
            finally:
                if not self._asked:
                    self._ended(why)

    def _let_go(self, why: str) -> None:
        """Fail the futures of inputs that will not be written."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._in_hand += [handed.what for handed in (self._queue.get_nowait(),) if handed is not None]
        for _, done in self._in_hand:
            if done is not None and not done.done():
                done.set_exception(StoreError(why))

    def _turn(self) -> bool:
        """Process one batch. False if it was the last."""
        batch, last = self._next_batch()
        self._in_hand, self._begun = batch, self._clock.monotonic()
        if self._batches.write([*(item for item, _ in batch), *self._due_ticks()]):
            self.snapshot = self._snapshot()
            self._published(self.snapshot)
        self._begun = None
        self._count(-sum(input_weight(item) for item, _ in batch))
        for _, done in batch:
            if done is not None:
                with contextlib.suppress(InvalidStateError):  # its caller has given up
                    done.set_result(None)
        if not last and self._queue.empty():
            self._tidy()
        return not last

    def _tidy(self) -> None:
        """Run deferrable work. It is bounded, and its failure does not stop decisions."""
        try:
            self._idle(self.epoch)
        except SQLAlchemyError as error:
            log.warning("cleaning up the database failed and is retried later: %s", error)

    def _next_batch(self) -> tuple[list[_Handed], bool]:
        """Return the next inputs, and whether everything from before `stop` has been taken. Waits at most for a tick."""
        batch: list[_Handed] = []
        begun, last, pieces = self._clock.monotonic(), False, 0
        until = max(begun, self._next_tick_at)
        with contextlib.suppress(queue.Empty):
            handed = self._queue.get(timeout=until - begun)
            until = self._clock.monotonic() + GATHER_S if self._pressed else begun
            while handed is not None:
                batch.append(handed.what)
                pieces += handed.weight
                if len(batch) >= BATCH_MAX or pieces >= BATCH_PIECES:
                    break
                handed = self._queue.get(timeout=max(0.0, until - self._clock.monotonic()))
            last = handed is None
        self._pressed = len(batch) >= PRESSURE_MIN
        return batch, last

    def _due_ticks(self) -> list[Tick]:
        now = self._clock.monotonic()
        if now < self._next_tick_at:
            return []
        self._next_tick_at = now + TICK_S
        return [Tick(at=self._clock.wall())]

    def _snapshot(self) -> StateSnapshot:
        state = self._batches.state
        parts: dict[str, Any] = {name: dict(getattr(state, name)) for name in _COPIED}
        ordered: dict[str, list[Action]] = {}
        for action in state.actions.values():
            if action.order is not None and not action.state.final:
                ordered.setdefault(action.node, []).append(action)
        failed = {verb: len(incidents) for verb, incidents in state.streak.failed.items()}
        given_up = dict(state.unanswered_actions.actions)
        return StateSnapshot(
            **parts, unanswered_actions=given_up, ordered=ordered, isolated_at=tuple(state.isolated_at), failed=failed
        )


def input_weight(item: AnyInput) -> int:
    """Return the approximate weight of an input, in inputs."""
    if isinstance(item, FindingsReported):
        return 1 + len(item.changes) + len(item.active or ())
    return PLACEMENT_WEIGHS + len(item.jobs) if isinstance(item, PlacementChanged) else 1


def _input_lane(item: AnyInput) -> str:
    """Return the lane of an input: its node, or empty for operators, the scheduler and the controller."""
    if isinstance(item, FindingsReported | PlacementChanged | InventoryChanged | OrderAnswered):
        return item.node
    return ""

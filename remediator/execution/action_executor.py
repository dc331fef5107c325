"""Carries out the controller's own actions off the decision thread: scheduler holds, and one-time actions.

The intent is durable before this module gets it; the outcome goes back as an input. After a crash the same planned
action comes again, and every backend handles a repetition.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy.exc import SQLAlchemyError

from remediator.decisions.mode_stop import is_action_withheld
from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.engine.duty_cycle import DutyCycle
from remediator.execution.scheduler_health import SchedulerHealthLog, scheduler_health_text
from remediator.model.delivery import Delivery
from remediator.model.journal_records import Action, Incident, IncidentState
from remediator.model.override_records import AlertSilence
from remediator.model.pipeline_inputs import ActionEnded, HoldsObserved
from remediator.model.plan_steps import Verb
from remediator.model.scheduler_hold import REASON_PREFIX, ActionOutcome, ActionResult, SchedulerNodeState
from remediator.notifications.action_dispatcher import ActionDispatcher
from remediator.notifications.alert_settings import AlertSettings
from remediator.notifications.follow_up_messages import NotificationContext, is_acknowledged
from remediator.notifications.message_content import build_action_message
from remediator.overrides.cluster_overrides import find_matching_silence, list_open_silences
from remediator.overrides.hold_reconciliation import hold_contradicts_record
from remediator.overrides.manual_cordon import BY_HAND, CORDON, REASON, SEEN, UNCORDON
from remediator.schedulers.scheduler_protocol import CordonsTogether, NodeCordon, Scheduler, TracksLostDrains
from remediator.store.database import driver_message
from vocabulary.clock import Clock
from vocabulary.text.plurals import format_count

log = logging.getLogger(__name__)
WORKERS = 4
DOUBT_S = 0.05
TOGETHER = 100  # holds compared before the thread may rest
_HOLDING = frozenset({Verb.CORDON.value, "resume", "evict"}) | BY_HAND


class ActionExecutor:
    """Watches what the engine publishes, calls the scheduler, and reports back."""

    def __init__(
        self,
        cluster: str,
        scheduler: Scheduler,
        dispatcher: ActionDispatcher,
        clock: Clock,
        poll_s: float,
        poll_busy_s: float,
        telling: AlertSettings = AlertSettings(),  # noqa: B008 - frozen, and the same for everybody
    ) -> None:
        self.scheduler_word = "not asked yet"
        self.scheduler_failing = False  # its last pass had no answer for any node
        self._cluster = cluster
        self._telling = telling
        self._scheduler = scheduler
        self._dispatcher = dispatcher
        self._clock = clock
        self._poll_s = poll_s
        self._poll_busy_s = poll_busy_s
        self._attempted: dict[str, int] = {}  # action → number of the last attempt started
        self._seen: dict[str, SchedulerNodeState] = {}
        self._pace = DutyCycle()  # of the thread that reads all nodes
        self._said: Mapping[str, object] = {}  # the whole cluster's answers, as last seen
        self._spoken = SchedulerHealthLog()
        self._lock = threading.Lock()
        self._holds = ThreadPoolExecutor(WORKERS, thread_name_prefix="hold")
        self._cordons = ThreadPoolExecutor(WORKERS, thread_name_prefix="cordon")  # a slow eviction must not delay one
        self._due_cordons: list[Action] = []  # whichever worker is free next takes all
        # A dead webhook must not delay a cordon.
        self._others = ThreadPoolExecutor(WORKERS, thread_name_prefix="action")
        self._turns: dict[str, threading.Lock] = {}  # by node: changes of one node never run in parallel
        self._all_at = 0.0  # monotonic: next poll of all nodes
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._engine: DecisionEngine | None = None
        self._watcher = threading.Thread(target=self._watch, name="holds", daemon=True)

    def start(self, engine: DecisionEngine) -> None:
        """Start watching the scheduler and performing actions."""
        self._engine = engine
        self._dispatcher.start(
            NotificationContext(
                epoch=lambda: engine.epoch,
                is_open=lambda incident: incident in engine.snapshot.incidents,
                is_taken_up=lambda incident: is_acknowledged(engine.snapshot.incidents.get(incident)),
                leads=lambda: engine.may_act() and not engine.trouble,
                part_of=lambda incident: _parent_incident(engine.snapshot.incidents.values(), incident),
                silence_of=self._silence_of,
            )
        )
        if isinstance(self._scheduler, TracksLostDrains):
            nodes = engine.snapshot.nodes.values()
            self._scheduler.remember({n.node: n.hold_confirmed_at for n in nodes if n.held and n.hold_confirmed_at})
        self._watcher.start()
        self.start_due_actions(engine.snapshot)

    def stop(self) -> None:
        """Stop calling; running actions finish within their own deadlines."""
        self._stopping.set()
        self._wake.set()
        for pool in (self._cordons, self._holds, self._others):
            pool.shutdown(wait=True, cancel_futures=True)
        self._dispatcher.stop()

    def give_up(self) -> None:
        """End after leadership was lost: start nothing more, and let no action wait for it."""
        self._stopping.set()
        self._wake.set()

    def delivery_counts(self) -> dict[str, dict[str, int]]:
        """Return how delivery attempts to each receiver ended in this term, by receiver name."""
        return self._dispatcher.delivery_counts()

    def start_due_actions(self, snapshot: StateSnapshot) -> None:
        """Start whatever is planned, due and not running."""
        if self._engine is None or self._stopping.is_set():
            return
        if snapshot.operator_overrides != self._said:
            self._said = snapshot.operator_overrides
            self._dispatcher.wake()
        now = self._clock.wall()
        begun = []
        for action in snapshot.actions.values():
            due = action.not_before <= now < action.deadline
            if (
                action.order is None
                and not action.state.final
                and due
                and not is_action_withheld(snapshot.operator_overrides, action)
                and self._is_new_attempt(action)
            ):
                begun.append(action)
        self._begin(begun)
        with self._lock:
            for over in self._attempted.keys() - snapshot.actions.keys():
                del self._attempted[over]

    def _is_new_attempt(self, action: Action) -> bool:
        with self._lock:
            if self._attempted.get(action.id, -1) >= action.attempts:
                return False  # running, or ended and not yet published
            self._attempted[action.id] = action.attempts
            return True

    def _begin(self, actions: Iterable[Action]) -> None:
        cordons = []
        for action in actions:
            if action.verb == Verb.CORDON.value:
                cordons.append(action)
            else:
                pool = self._holds if action.verb in _HOLDING else self._others
                pool.submit(self._perform, action)
        with self._lock:
            self._due_cordons += cordons
        # As many tasks as cordons, so that they run side by side where the scheduler takes only one at a time.
        for _ in cordons[:WORKERS]:
            self._cordons.submit(self._perform_due_cordons)

    def _perform_due_cordons(self) -> None:
        while not self._stopping.is_set() and (actions := self._take_due_cordons()):
            if len(actions) == 1:
                self._perform(actions[0])
            else:
                self._cordon_together(actions)

    def _take_due_cordons(self) -> list[Action]:
        with self._lock:
            count = len(self._due_cordons) if isinstance(self._scheduler, CordonsTogether) else 1
            actions, self._due_cordons = self._due_cordons[:count], self._due_cordons[count:]
        return actions

    def _cordon_together(self, actions: Sequence[Action]) -> None:
        """Cordon many nodes in one call; then those that were being changed, so that they delay no other."""
        turns: dict[str, threading.Lock] = {}
        together: dict[str, Action] = {}
        busy = []
        for action in actions:
            turn = self._turn_of(action.node)
            if turn.acquire(blocking=False):
                turns[action.node], together[action.node] = turn, action
            else:
                busy.append(action)
        try:
            for node, outcome in self._cordon_many(dict(together)):
                turns.pop(node).release()
                self._ended(together.pop(node), outcome)
        except Exception as error:
            log.exception("cordoning %s failed", format_count(len(together), "node"))
            for action in together.values():
                self._ended(action, ActionOutcome(ActionResult.FAILED, repr(error)))
        else:
            for action in together.values():
                self._not_begun(action)
        finally:
            for turn in turns.values():
                turn.release()
        for action in busy:
            self._perform(action)

    def _cordon_many(self, actions: Mapping[str, Action]) -> Iterator[tuple[str, ActionOutcome]]:
        assert isinstance(self._scheduler, CordonsTogether)  # noqa: S101 - else one is taken at a time

        def may_begin(nodes: Collection[str]) -> list[str]:
            return [action.node for action in self._select_wanted([actions[node] for node in nodes])]

        cordons = [
            NodeCordon(a.node, f"{REASON_PREFIX} {a.reason}", a.reason.removeprefix(a.incident).strip())
            for a in actions.values()
        ]
        return self._scheduler.cordon_many(cordons, may_begin)

    def _perform(self, action: Action) -> None:
        try:
            with self._turn(action):
                if not self._select_wanted([action]):
                    self._not_begun(action)
                    return
                outcome = self._outcome(action)
        except SQLAlchemyError as error:  # a message that cannot be stored: usually a full disk
            log.error(
                "%s of %s failed and is retried: the database: %s", action.verb, action.node, driver_message(error)
            )
            outcome = ActionOutcome(ActionResult.FAILED, f"the database: {driver_message(error)}")
        except Exception as error:
            log.exception("%s of %s failed", action.verb, action.node)
            outcome = ActionOutcome(ActionResult.FAILED, repr(error))
        self._ended(action, outcome)

    def _ended(self, action: Action, outcome: ActionOutcome) -> None:
        if not self._submit(ActionEnded(at=self._clock.wall(), action=action.id, outcome=outcome)):
            self._not_begun(action)
        if action.verb in _HOLDING:
            self._seen.pop(action.node, None)  # whatever is seen from now on is news, even if it is unchanged
        self._wake.set()

    def _not_begun(self, action: Action) -> None:
        """Allow another start, where still wanted: this attempt had no effect."""
        with self._lock:
            self._attempted.pop(action.id, None)

    def _turn(self, action: Action) -> contextlib.AbstractContextManager[object]:
        return self._turn_of(action.node) if action.verb in _HOLDING else contextlib.nullcontext()

    def _turn_of(self, node: str) -> threading.Lock:
        with self._lock:
            return self._turns.setdefault(node, threading.Lock())

    def _select_wanted(self, actions: Sequence[Action]) -> list[Action]:
        """Wait while the lease is in doubt, right before the effect. Return the actions that are still wanted."""
        assert self._engine is not None  # noqa: S101 - started before anything is performed
        while not self._stopping.is_set() and (wanted := [each for each in actions if self._still_wanted(each)]):
            if self._engine.may_act():
                return wanted
            self._stopping.wait(DOUBT_S)
        return []

    def _still_wanted(self, action: Action) -> bool:
        """Return whether it is still wanted: it may be cancelled, stopped, or so late that it would undo a newer one."""
        assert self._engine is not None  # noqa: S101 - started before anything is performed
        snapshot = self._engine.snapshot
        latest = snapshot.actions.get(action.id)
        if latest is None or latest.state.final or is_action_withheld(snapshot.operator_overrides, latest):
            return False
        return self._clock.wall() < latest.deadline

    def _outcome(self, action: Action) -> ActionOutcome:
        if action.verb == "resume":
            return self._scheduler.resume(action.node)
        if action.verb == "evict":
            return self._scheduler.evict(action.node)
        if action.verb == Verb.CORDON.value:
            return self._scheduler.cordon(action.node, f"{REASON_PREFIX} {action.reason}")
        if action.verb == CORDON:
            return self._scheduler.cordon_for(action.node, str(action.data[REASON]))
        if action.verb == UNCORDON:
            return self._scheduler.uncordon_for(action.node, str(action.data[SEEN]))
        return self._tell(action)

    def _tell(self, action: Action) -> ActionOutcome:
        assert self._engine is not None  # noqa: S101 - started before anything is performed
        known = self._engine.snapshot
        incident = known.incidents.get(action.incident)
        named = incident.findings if incident is not None else ()
        findings = [known.findings[each] for each in named if each in known.findings]
        node = known.nodes.get(action.node)
        message = build_action_message(action, incident, findings, node, self._telling, self._cluster)
        kinds = tuple(sorted({finding.kind for finding in findings}))
        return self._dispatcher.do(action, message, kinds)

    def _silence_of(self, item: Delivery) -> AlertSilence | None:
        assert self._engine is not None  # noqa: S101 - started before anything is published
        known = list_open_silences(self._engine.snapshot.operator_overrides)
        return find_matching_silence(known, item.message.node, item.kinds, self._clock.wall())

    def _watch(self) -> None:
        while not self._stopping.is_set():
            self._observe()
            engine = self._engine
            self._wake.wait(
                self._poll_busy_s if engine is not None and _nodes_in_play(engine.snapshot) else self._poll_s
            )
            self._wake.clear()
            if engine is not None:
                self.start_due_actions(engine.snapshot)

    def _observe(self) -> None:
        """Poll all nodes at intervals, and more often those with a running plan or a change of ours."""
        known = self._engine.snapshot if self._engine is not None else None
        if known is None or not known.nodes:
            return
        at, now = self._clock.wall(), self._clock.monotonic()
        whole = now >= self._all_at
        asked = known.nodes.keys() if whole else _nodes_in_play(known) | (known.nodes.keys() - self._seen.keys())
        if not asked:
            return
        if whole:
            self._all_at = now + self._poll_s
        self._pace.begin()
        try:
            holds = self._scheduler.observe(asked)
        except Exception as error:
            log.exception("querying the scheduler failed")
            self.scheduler_word = f"query failed: {error!r}"
            self.scheduler_failing = True
            return
        if whole:
            self.scheduler_failing = all(hold.schedulable is None for hold in holds.values())
            self.scheduler_word = scheduler_health_text(holds)
            self._spoken.log(self.scheduler_word, now)
        busy = _nodes_to_change(known)
        changed = tuple(
            hold
            for name, hold in self._pace.over(sorted(holds.items()), TOGETHER)
            if self._seen.get(name) != hold or (name not in busy and hold_contradicts_record(known.nodes[name], hold))
        )
        if changed and self._submit(HoldsObserved(at=at, holds=changed)):
            self._seen.update((hold.node, hold) for hold in changed)

    def _submit(self, item: ActionEnded | HoldsObserved) -> bool:
        try:
            assert self._engine is not None  # noqa: S101 - started before anything is performed
            self._engine.submit(item)
        except queue.Full:
            log.error("the engine's queue is full; %s is retried", type(item).__name__)
            return False
        return True


def _parent_incident(incidents: Iterable[Incident], part: str) -> str:
    """Return the open incident that absorbed an ended one, by id; empty if none did."""
    return next((each.id for each in incidents if part in each.parts), "")


def _nodes_in_play(known: StateSnapshot) -> set[str]:
    """Return the nodes with a running plan or a pending change in the scheduler."""
    acting = {incident.node for incident in known.incidents.values() if incident.state is IncidentState.ACTING}
    return (acting | _nodes_to_change(known)) & known.nodes.keys()


def _nodes_to_change(known: StateSnapshot) -> set[str]:
    return {action.node for action in known.actions.values() if action.verb in _HOLDING and not action.state.final}

"""The performer against a slow scheduler: what was overtaken while it waited is not carried out."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, cast

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import OperationalError

from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.execution.action_executor import ActionExecutor
from remediator.model.journal_records import Action, ActionState, Incident, IncidentState, NodeRecord
from remediator.model.override_records import MODE, ModeOverride, OperatorOverride
from remediator.model.pipeline_inputs import ActionEnded
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, SchedulerNodeState
from remediator.notifications.action_dispatcher import ActionDispatcher
from vocabulary.clock import SystemClock


class SlowScheduler:
    """Notes what it is asked, each after a pause."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.at_once = 0
        self.at_once_max = 0
        self.looked = 0
        self.about: list[set[str]] = []

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        self.looked += 1
        self.about.append(set(nodes))
        return {node: SchedulerNodeState(node, schedulable=True) for node in nodes}

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        assert reason.startswith("gpu-healthd:")
        return self._do("cordon", node)

    def resume(self, node: str) -> ActionOutcome:
        return self._do("resume", node)

    def evict(self, node: str) -> ActionOutcome:
        return self._do("evict", node)

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        assert reason.startswith("by ")
        return self._do("cordon_for", node)

    def _do(self, verb: str, node: str) -> ActionOutcome:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        self.asked.append((verb, node))
        self.gate.wait(60)
        self.at_once -= 1
        return ActionOutcome(ActionResult.DONE)


class Board:
    """What the performer needs of an engine: a snapshot, and somewhere to hand outcomes in."""

    def __init__(self) -> None:
        self.snapshot = StateSnapshot(nodes={}, findings={}, incidents={}, actions={}, holds={})
        self.ended: list[str] = []
        self.told: list[str] = []
        self.outcomes: list[ActionOutcome] = []
        self.leads = True

    def may_act(self) -> bool:
        return self.leads

    def submit(self, item: Any) -> None:
        self.ended.append(getattr(item, "action", ""))
        self.outcomes += [item.outcome] if isinstance(item, ActionEnded) else []
        self.told.append(type(item).__name__)

    def publish(self, *actions: Action, mode: Mode | None = None) -> StateSnapshot:
        said: dict[str, OperatorOverride] = {MODE: ModeOverride(mode, "ann", 1.0)} if mode is not None else {}
        planned = {a.id: a for a in actions}
        self.snapshot = StateSnapshot(
            nodes={}, findings={}, incidents={}, actions=planned, holds={}, operator_overrides=said
        )
        return self.snapshot


def action(name: str, verb: str, deadline_s: float = 60.0) -> Action:
    now = time.time()
    return Action(id=name, incident="i", decision="d", node="n1", verb=verb, planned_at=now, deadline=now + deadline_s)


def until(question: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def world() -> Iterator[tuple[ActionExecutor, SlowScheduler, Board]]:
    scheduler, board = SlowScheduler(), Board()
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 60.0, 60.0)
    performer.start(cast("DecisionEngine", board))
    yield performer, scheduler, board
    scheduler.gate.set()
    performer.stop()


def test_two_changes_of_one_node_never_run_side_by_side(world: tuple[ActionExecutor, SlowScheduler, Board]) -> None:
    performer, scheduler, board = world
    performer.start_due_actions(board.publish(action("a", "resume"), action("b", "cordon")))
    until(lambda: bool(scheduler.asked))
    time.sleep(0.1)
    scheduler.gate.set()
    until(lambda: len(board.ended) >= 2)
    assert scheduler.at_once_max == 1


@pytest.mark.parametrize("verb", ["cordon", "evict", "resume"])
def test_a_state_to_hold_is_the_schedulers(world: tuple[ActionExecutor, SlowScheduler, Board], verb: str) -> None:
    performer, scheduler, board = world
    scheduler.gate.set()
    performer.start_due_actions(board.publish(action("a", verb)))
    until(lambda: "a" in board.ended)
    assert scheduler.asked == [(verb, "n1")]


def test_a_scheduler_that_does_not_answer_holds_up_no_alert(world: tuple[ActionExecutor, SlowScheduler, Board]) -> None:
    performer, scheduler, board = world
    drains = [replace(action(f"c{n}", "cordon"), node=f"n{n}") for n in range(9)]  # more than there are workers
    performer.start_due_actions(board.publish(*drains, action("tell", "alert")))
    until(lambda: board.ended == ["tell"])
    assert len(scheduler.asked) < len(drains)


def test_what_was_cancelled_while_it_waited_is_not_carried_out(
    world: tuple[ActionExecutor, SlowScheduler, Board],
) -> None:
    performer, scheduler, board = world
    first, second = action("a", "cordon"), action("b", "resume")
    performer.start_due_actions(board.publish(first))
    until(lambda: bool(scheduler.asked))
    performer.start_due_actions(board.publish(first, second))
    board.publish(first, replace(second, state=ActionState.CANCELLED))
    scheduler.gate.set()
    until(lambda: "a" in board.ended)
    time.sleep(0.1)
    assert scheduler.asked == [("cordon", "n1")]


def test_what_is_too_late_is_not_carried_out(world: tuple[ActionExecutor, SlowScheduler, Board]) -> None:
    performer, scheduler, board = world
    first = action("a", "cordon")
    performer.start_due_actions(board.publish(first))
    until(lambda: bool(scheduler.asked))
    performer.start_due_actions(board.publish(first, action("b", "resume", deadline_s=0.2)))
    time.sleep(0.3)
    scheduler.gate.set()
    until(lambda: "a" in board.ended)
    time.sleep(0.1)
    assert scheduler.asked == [("cordon", "n1")]


def test_nothing_begins_while_the_lead_is_in_doubt(world: tuple[ActionExecutor, SlowScheduler, Board]) -> None:
    performer, scheduler, board = world
    scheduler.gate.set()
    board.leads = False
    performer.start_due_actions(board.publish(action("a", "cordon")))
    time.sleep(0.3)
    assert scheduler.asked == []
    board.leads = True
    until(lambda: "a" in board.ended)
    assert scheduler.asked == [("cordon", "n1")]


def test_when_the_term_is_over_nobody_waits_for_the_lead_any_more(
    world: tuple[ActionExecutor, SlowScheduler, Board],
) -> None:
    """A thread that did would keep a deposed process from its end, and so from standing by again."""
    performer, scheduler, board = world
    board.leads = False
    performer.start_due_actions(board.publish(action("a", "cordon")))
    performer.give_up()
    ended = threading.Thread(target=performer._cordons.shutdown, daemon=True)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    assert scheduler.asked == []


def test_what_was_cancelled_while_the_lead_was_in_doubt_never_begins(
    world: tuple[ActionExecutor, SlowScheduler, Board],
) -> None:
    performer, scheduler, board = world
    scheduler.gate.set()
    board.leads = False
    first = action("a", "cordon")
    performer.start_due_actions(board.publish(first))
    board.publish(replace(first, state=ActionState.CANCELLED))
    board.leads = True
    performer.start_due_actions(board.publish(replace(first, state=ActionState.CANCELLED), action("b", "resume")))
    until(lambda: "b" in board.ended)
    assert scheduler.asked == [("resume", "n1")]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_what_a_person_stopped_is_not_tried_until_the_mode_is_raised(
    world: tuple[ActionExecutor, SlowScheduler, Board], mode: Mode
) -> None:
    performer, scheduler, board = world
    scheduler.gate.set()
    first, back = action("a", "cordon"), replace(action("b", "resume"), node="n2")
    mine = replace(action("c", "cordon_by_hand"), incident="", decision="", data={"reason": "by ann: x"}, node="n3")
    performer.start_due_actions(board.publish(first, back, mine, mode=mode))
    until(lambda: {"b", "c"} <= set(board.ended))
    performer.start_due_actions(board.publish(first, mode=mode))
    assert ("cordon", "n1") not in scheduler.asked
    performer.start_due_actions(board.publish(first))
    until(lambda: "a" in board.ended)
    assert ("cordon", "n1") in scheduler.asked


def test_what_is_stopped_while_it_waits_for_its_turn_is_not_begun_and_not_forgotten(
    world: tuple[ActionExecutor, SlowScheduler, Board],
) -> None:
    performer, scheduler, board = world
    scheduler.gate.set()
    board.leads = False
    first, back = action("a", "cordon"), replace(action("b", "resume"), node="n2")
    performer.start_due_actions(board.publish(first))
    board.publish(first, mode=Mode.OBSERVE)
    board.leads = True
    performer.start_due_actions(board.publish(first, back, mode=Mode.OBSERVE))
    until(lambda: "b" in board.ended)
    until(lambda: not performer._attempted.keys() & {"a"})
    assert scheduler.asked == [("resume", "n2")]
    performer.start_due_actions(board.publish(first))
    until(lambda: "a" in board.ended)


@pytest.mark.parametrize(
    ("record", "under_way", "told_again"),
    [
        (NodeRecord("n1"), "", ""),
        (NodeRecord("n1", NodeState.DRAINING, held=True, hold_confirmed_at=1.0), "", "yes"),
        (NodeRecord("n1", NodeState.DRAINING, held=True), "cordon", ""),
    ],
)
def test_the_scheduler_is_told_of_again_where_it_contradicts_us(
    record: NodeRecord, under_way: str, told_again: str
) -> None:
    scheduler, board = SlowScheduler(), Board()
    later = replace(action("a", under_way), not_before=time.time() + 60)
    planned = {"a": later} if under_way else {}
    board.snapshot = StateSnapshot(nodes={"n1": record}, findings={}, incidents={}, actions=planned, holds={})
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 0.01, 0.01)
    performer.start(cast("DecisionEngine", board))
    until(lambda: scheduler.looked > 3)
    performer.stop()
    assert (len(board.told) > 1) is bool(told_again)


def test_what_the_scheduler_says_after_a_change_of_ours_is_always_told() -> None:
    scheduler, board = SlowScheduler(), Board()
    scheduler.gate.set()
    board.snapshot = StateSnapshot(nodes={"n1": NodeRecord("n1")}, findings={}, incidents={}, actions={}, holds={})
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 60.0, 60.0)
    performer.start(cast("DecisionEngine", board))
    until(lambda: board.told == ["HoldsObserved"])
    board.snapshot = replace(board.snapshot, actions={"a": action("a", "cordon")})
    performer.start_due_actions(board.snapshot)
    until(lambda: board.told == ["HoldsObserved", "ActionEnded", "HoldsObserved"])
    performer.stop()


def test_between_two_looks_at_all_only_the_nodes_of_a_plan_are_asked_about() -> None:
    scheduler, board = SlowScheduler(), Board()
    nodes = {name: NodeRecord(name) for name in ("n1", "n2", "n3")}
    acting = Incident(id="i", node="n2", title="t", opened_at=1.0, state=IncidentState.ACTING)
    board.snapshot = StateSnapshot(nodes=nodes, findings={}, incidents={"i": acting}, actions={}, holds={})
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 60.0, 0.01)
    performer.start(cast("DecisionEngine", board))
    until(lambda: scheduler.looked > 2)
    performer.stop()
    assert scheduler.about[:3] == [set(nodes), {"n2"}, {"n2"}]


class FullDisk(ActionDispatcher):
    """Nothing can be written down."""

    def do(self, *_: object) -> NoReturn:
        raise OperationalError("insert", {}, sqlite3.OperationalError("database or disk is full"))


def test_a_full_disk_is_told_in_one_line_and_the_message_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    board = Board()
    performer = ActionExecutor("c", SlowScheduler(), FullDisk({}), SystemClock(), 60.0, 60.0)
    performer.start(cast("DecisionEngine", board))
    performer.start_due_actions(board.publish(action("tell", "alert")))
    until(lambda: board.ended == ["tell"])
    performer.stop()
    assert board.outcomes[0].result is ActionResult.FAILED
    assert "database or disk is full" in board.outcomes[0].detail
    assert [record.exc_info for record in caplog.records if record.levelname == "ERROR"] == [None]

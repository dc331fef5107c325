"""Cordons that are due together reach the scheduler in one call, and each is begun and ended like a single one."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from typing import cast

import pytest
from msgspec.structs import replace

from remediator.engine.decision_engine import DecisionEngine
from remediator.execution.action_executor import WORKERS, ActionExecutor
from remediator.model.journal_records import Action, ActionState
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.notifications.action_dispatcher import ActionDispatcher
from remediator.schedulers.scheduler_protocol import MayBegin, NodeCordon
from tests.unit.remediator.test_action_executor import Board, SlowScheduler, action, until
from vocabulary.clock import SystemClock


class ManyAtOnce(SlowScheduler):
    """Takes many cordons in a call, and notes them. `many` holds the calls up before they ask what may begin."""

    def __init__(self) -> None:
        super().__init__()
        self.many = threading.Event()
        self.many.set()
        self.calls: list[list[NodeCordon]] = []
        self.begun: list[str] = []
        self.breaks_at = ""

    def cordon_many(self, cordons: Sequence[NodeCordon], may_begin: MayBegin) -> Iterator[tuple[str, ActionOutcome]]:
        self.calls.append(list(cordons))
        self.many.wait(60)
        allowed: Collection[str] = may_begin([each.node for each in cordons])
        for node in allowed:
            if node == self.breaks_at:
                raise ValueError(node)
            self.begun.append(node)
            yield node, ActionOutcome(ActionResult.DONE, f"held {node}")


World = tuple[ActionExecutor, ManyAtOnce, Board]


@pytest.fixture
def world() -> Iterator[World]:
    scheduler, board = ManyAtOnce(), Board()
    scheduler.gate.set()
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 60.0, 60.0)
    performer.start(cast("DecisionEngine", board))
    yield performer, scheduler, board
    scheduler.gate.set()
    scheduler.many.set()
    performer.stop()


def burst(*numbers: int, first: str = "n") -> list[Action]:
    named = {f"{first}{number}": action(f"c-{first}{number}", "cordon") for number in numbers}
    return [replace(each, node=node, incident="inc-1", reason="inc-1 gpu-lost") for node, each in named.items()]


def test_what_is_due_together_is_one_call_and_each_has_its_outcome(world: World) -> None:
    performer, scheduler, board = world
    due = burst(*range(300))
    performer.start_due_actions(board.publish(*due))
    until(lambda: len(board.ended) == len(due))
    assert [len(call) for call in scheduler.calls] == [len(due)]
    assert scheduler.calls[0][7] == NodeCordon("n7", "gpu-healthd: inc-1 gpu-lost", "gpu-lost")
    assert {name: out.detail for name, out in zip(board.ended, board.outcomes, strict=True)} == {
        each.id: f"held {each.node}" for each in due
    }


def test_one_alone_is_a_single_cordon(world: World) -> None:
    performer, scheduler, board = world
    performer.start_due_actions(board.publish(*burst(1)))
    until(lambda: bool(board.ended))
    assert (scheduler.calls, scheduler.asked) == ([], [("cordon", "n1")])


def test_what_becomes_due_while_all_workers_are_busy_gathers(world: World) -> None:
    performer, scheduler, board = world
    scheduler.many.clear()
    known: list[Action] = []
    for number in range(WORKERS):
        known += burst(1, 2, first=f"w{number}-")
        performer.start_due_actions(board.publish(*known))
        until(lambda: len(scheduler.calls) == number + 1)  # noqa: B023 - asked before the next number
    for number in range(20):
        known += burst(1, 2, first=f"late{number}-")
        performer.start_due_actions(board.publish(*known))
    scheduler.many.set()
    until(lambda: len(board.ended) == len(known))
    assert [len(call) for call in scheduler.calls] == [2] * WORKERS + [40]


def test_what_was_cancelled_while_the_lead_was_in_doubt_never_begins(world: World) -> None:
    performer, scheduler, board = world
    board.leads = False
    due = burst(1, 2, 3)
    performer.start_due_actions(board.publish(*due))
    until(lambda: bool(scheduler.calls))
    assert scheduler.begun == []
    board.publish(replace(due[0], state=ActionState.CANCELLED), replace(due[1], deadline=0.0), due[2])
    board.leads = True
    until(lambda: bool(board.ended))
    assert (scheduler.begun, board.ended) == (["n3"], ["c-n3"])


def test_what_was_stopped_meanwhile_is_not_begun_and_not_forgotten(world: World) -> None:
    performer, scheduler, board = world
    scheduler.many.clear()
    due = burst(1, 2, 3)
    performer.start_due_actions(board.publish(*due))
    until(lambda: bool(scheduler.calls))
    board.publish(*due, mode=Mode.OBSERVE)
    scheduler.many.set()
    until(lambda: not performer._attempted)
    assert scheduler.begun == []
    performer.start_due_actions(board.publish(*due))
    until(lambda: len(board.ended) == 3)


def test_after_the_end_of_the_term_nothing_of_a_call_begins(world: World) -> None:
    performer, scheduler, board = world
    scheduler.many.clear()
    performer.start_due_actions(board.publish(*burst(1, 2, 3)))
    until(lambda: bool(scheduler.calls))
    performer.give_up()
    scheduler.many.set()
    until(lambda: not performer._attempted)
    assert (scheduler.begun, board.ended) == ([], [])


def test_a_node_that_is_being_changed_waits_for_its_turn_and_delays_no_other(world: World) -> None:
    performer, scheduler, board = world
    scheduler.gate.clear()
    back = replace(action("r", "resume"), node="n2")
    performer.start_due_actions(board.publish(back))
    until(lambda: scheduler.asked == [("resume", "n2")])
    performer.start_due_actions(board.publish(back, *burst(1, 2, 3)))
    until(lambda: board.ended == ["c-n1", "c-n3"])
    assert scheduler.asked == [("resume", "n2")]
    scheduler.gate.set()
    until(lambda: set(board.ended) == {"c-n1", "c-n3", "r", "c-n2"})
    assert scheduler.asked == [("resume", "n2"), ("cordon", "n2")]


def test_two_cordons_of_a_node_are_two_calls(world: World) -> None:
    performer, scheduler, board = world
    one, other = burst(1, 2)
    again = replace(one, id="c-again")
    performer.start_due_actions(board.publish(one, other, again))
    until(lambda: len(board.ended) == 3)
    assert [[each.node for each in call] for call in scheduler.calls] == [["n1", "n2"]]
    assert scheduler.asked == [("cordon", "n1")]


def test_an_internal_error_fails_what_has_no_outcome_and_frees_every_turn(world: World) -> None:
    performer, scheduler, board = world
    scheduler.breaks_at = "n2"
    due = burst(1, 2, 3)
    performer.start_due_actions(board.publish(*due))
    until(lambda: len(board.ended) == 3)
    assert [outcome.result for outcome in board.outcomes] == [
        ActionResult.DONE,
        ActionResult.FAILED,
        ActionResult.FAILED,
    ]
    assert "ValueError('n2')" in board.outcomes[1].detail
    scheduler.breaks_at = ""
    performer.start_due_actions(board.publish(*(replace(each, attempts=1) for each in due)))
    until(lambda: len(board.ended) == 6)


def test_slow_evictions_delay_no_cordon(world: World) -> None:
    performer, scheduler, board = world
    scheduler.gate.clear()
    slow = [replace(action(f"e{n}", "evict"), node=f"e{n}") for n in range(2 * WORKERS)]
    performer.start_due_actions(board.publish(*slow))
    until(lambda: len(scheduler.asked) == WORKERS)
    performer.start_due_actions(board.publish(*slow, *burst(1, 2)))
    until(lambda: board.ended == ["c-n1", "c-n2"])

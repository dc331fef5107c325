"""Why the scheduler cannot be asked: in the status, and once in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from typing import Any, cast

import pytest

from remediator.api.record_views import node_list_view
from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.execution.action_executor import ActionExecutor
from remediator.execution.scheduler_health import QUIET_S, SchedulerHealthLog, scheduler_health_text
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import NodeRecord
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.notifications.action_dispatcher import ActionDispatcher
from vocabulary.clock import SystemClock

AWAY = "scontrol gave no answer within 10 s; check that slurmctld is running"


def holds(*reasons: str) -> dict[str, SchedulerNodeState]:
    """A node per reason; an empty one is a node that is fine."""
    return {f"n{k}": SchedulerNodeState(f"n{k}", None if why else True, reason=why) for k, why in enumerate(reasons)}


@pytest.mark.parametrize(
    ("said", "word"),
    [
        (holds("", ""), "ok"),
        (holds(AWAY, AWAY), f"gives no answer for 2 of 2 nodes: {AWAY}"),
        (holds("", "no node n1", "no node n2"), "gives no answer for 2 of 3 nodes: no node n1 (and 1 other reason)"),
        (holds("a", "b", "c", "b"), "gives no answer for 4 of 4 nodes: a (and 2 other reasons)"),
    ],
)
def test_the_first_reason_is_named(said: dict[str, SchedulerNodeState], word: str) -> None:
    assert scheduler_health_text(said) == word


def test_it_is_logged_once_and_never_often(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    spoken, away = SchedulerHealthLog(), scheduler_health_text(holds(AWAY))
    for at in range(5):
        spoken.log("ok", at)
    assert caplog.messages == []
    for at in range(5, 500):
        spoken.log(away, at)
    assert caplog.messages == [f"the scheduler {away}"]
    for at in range(500, 560):  # it comes and goes
        spoken.log(away if at % 2 else "ok", at)
    assert len(caplog.messages) <= 2 + 60 / QUIET_S
    for at in range(560, 700):
        spoken.log("ok", at)
    assert caplog.messages[-1] == "the scheduler answers for every node again"


class Away:
    """A scheduler that cannot be asked."""

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        return {node: SchedulerNodeState(node, None, reason=AWAY) for node in nodes}

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        return ActionOutcome(ActionResult.FAILED, f"{node}: {reason}")

    def resume(self, node: str) -> ActionOutcome:
        return ActionOutcome(ActionResult.FAILED, node)

    evict = resume


class Board:
    """One node, and nothing to do."""

    snapshot = StateSnapshot(nodes={"n1": NodeRecord("n1")}, findings={}, incidents={}, actions={}, holds={})

    def may_act(self) -> bool:
        return True

    def submit(self, item: Any) -> None:
        pass


def test_the_centre_says_why_its_scheduler_does_not(caplog: pytest.LogCaptureFixture) -> None:
    performer = ActionExecutor("c", Away(), ActionDispatcher({}), SystemClock(), 0.01, 0.01)
    performer.start(cast("DecisionEngine", Board()))
    deadline = time.monotonic() + 90
    while not any(AWAY in line for line in caplog.messages) and time.monotonic() < deadline:
        time.sleep(0.01)
    performer.stop()
    assert performer.scheduler_word == f"gives no answer for 1 of 1 node: {AWAY}"
    assert performer.scheduler_failing
    assert caplog.messages.count(f"the scheduler {performer.scheduler_word}") == 1


@pytest.mark.parametrize(
    ("hold", "held_by"),
    [
        (None, ""),
        (SchedulerNodeState("n1", schedulable=True), ""),
        (SchedulerNodeState("n1", schedulable=False, owner=HoldOwner.OPERATOR), "operator"),
        (SchedulerNodeState("n1", None, reason=AWAY), "?"),
    ],
)
def test_who_holds_a_node_that_nobody_tells_of_is_not_known(hold: SchedulerNodeState | None, held_by: str) -> None:
    known = {"n1": NodeRecord("n1")}
    seen = {"n1": hold} if hold else {}
    snapshot = StateSnapshot(nodes=known, findings={}, incidents={}, actions={}, holds=seen)
    (line,) = node_list_view(snapshot, ReportRegistry(), 0.0, "", 10).nodes
    assert line.held_by == held_by

"""A new leader and the Slurm that lost its drains meanwhile: the controller's own record says what was held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.execution.action_executor import ActionExecutor
from remediator.model.journal_records import NodeRecord
from remediator.model.scheduler_hold import SchedulerNodeState
from remediator.notifications.action_dispatcher import ActionDispatcher
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from vocabulary.clock import SystemClock


class Remembering(SlurmScheduler):
    """Notes what it is told to remember."""

    def __init__(self) -> None:
        super().__init__()
        self.told: Mapping[str, float] = {}

    def remember(self, held: Mapping[str, float]) -> None:
        self.told = held

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        return {node: SchedulerNodeState(node, None) for node in nodes}


class Board:
    """An engine that has loaded what the last term left."""

    epoch = 2
    trouble = ""

    def __init__(self, *nodes: NodeRecord) -> None:
        known = {node.node: node for node in nodes}
        self.snapshot = StateSnapshot(nodes=known, findings={}, incidents={}, actions={}, holds={})

    def may_act(self) -> bool:
        return True

    def submit(self, item: Any) -> None:
        pass


def test_slurm_is_told_at_the_start_of_a_term_what_is_held() -> None:
    scheduler = Remembering()
    performer = ActionExecutor("c", scheduler, ActionDispatcher({}), SystemClock(), 60.0, 60.0)
    held = NodeRecord(node="n1", held=True, hold_confirmed_at=1.7e9)
    board = Board(held, NodeRecord(node="n2", held=True), NodeRecord(node="n3"))
    performer.start(cast("DecisionEngine", board))
    performer.stop()
    assert scheduler.told == {"n1": 1.7e9}

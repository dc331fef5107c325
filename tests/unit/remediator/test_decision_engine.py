"""The deciding thread and its database: what is taken stays in order, what cannot be written is not taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import OperationalError

from remediator.decisions.decision_settings import DecisionSettings
from remediator.engine import decision_engine as engines
from remediator.engine.decision_engine import DecisionEngine
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, FindingsReported, PlacementChanged
from remediator.state.state_changes import StateChanges
from remediator.store.journal import Journal, StoreError
from tests.timelines.timeline import settings
from tests.unit.remediator.api.test_access_control import finding
from vocabulary.clock import SystemClock
from vocabulary.finding import Severity


class Failing(Journal):
    """A database that can be away."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.away = threading.Event()
        self.over = False

    def commit(self, inputs: Sequence[AnyInput], changes: StateChanges, epoch: int, batch: int | None = None) -> None:
        if self.over:
            raise StoreError("epoch 1 is over")
        if self.away.is_set():
            raise OperationalError("INSERT", {}, Exception("away"))
        super().commit(inputs, changes, epoch, batch)


@pytest.fixture
def journal(tmp_path: Path) -> Failing:
    return Failing(f"sqlite:///{tmp_path}/r.db")


def running(journal: Journal, **more: Any) -> DecisionEngine:
    rules: DecisionSettings = settings()
    engine = DecisionEngine(journal, rules, SystemClock(), lambda _snapshot: None, **more)
    engine.start()
    return engine


def placed(number: int) -> PlacementChanged:
    return PlacementChanged(at=time.time(), node="n1", jobs=(JobRef("j", number),))


def told(node: str, number: int, findings: int) -> FindingsReported:
    now = time.time()
    many = tuple(
        replace(
            finding(node),
            id=f"{node}-{number}-{n}",
            first_seen=now,
            last_seen=now,
            severity=Severity.INFO,
            active=False,
        )
        for n in range(findings)
    )
    return FindingsReported(at=now, node=node, boot_id="b", changes=many)


def until(question: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline, words
        time.sleep(0.01)


def test_what_came_while_the_database_was_away_is_written_in_its_order(journal: Failing) -> None:
    engine = running(journal)
    journal.away.set()
    waiting: list[Future[None]] = [engine.submit_durably(placed(number)) for number in range(600)]
    until(lambda: "away" in engine.trouble, "it does not say so")
    assert not any(done.done() for done in waiting), "nothing is acknowledged"
    assert "away" in engine.overload(), "and nodes are asked to wait"
    assert engine.alive
    journal.away.clear()
    for done in waiting:
        done.result(60)
    assert engine.trouble == engine.overload() == ""
    engine.stop()
    placements = [item for item in journal.inputs() if isinstance(item, PlacementChanged)]
    assert [item.jobs[0].attempt for item in placements] == list(range(600))
    journal.close()


def test_too_much_that_waits_is_refused(journal: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "WAITING_MAX", 10)
    gate = threading.Event()
    engine = running(journal, idle=lambda _epoch: gate.wait(60) and None)
    until(lambda: engine._batches.number and engine._queue.empty(), "the first batch is not written")
    waiting = [engine.submit_durably(placed(number)) for number in range(20)]
    until(lambda: "inputs wait to be written" in engine.overload(), "it takes more than it can hold")
    gate.set()
    for done in waiting:
        done.result(60)
    until(lambda: engine.overload() == "", "it does not recover")
    engine.stop()
    journal.close()


def test_one_nodes_flood_keeps_nobody_else_waiting(journal: Failing) -> None:
    gate = threading.Event()
    engine = running(journal, idle=lambda _epoch: gate.wait(60) and None)
    until(lambda: engine._batches.number and engine._queue.empty(), "the first batch is not written")
    done = [engine.submit_durably(told("n1", number, 500)) for number in range(8)]
    done += [engine.submit_durably(told(node, 9, 1)) for node in ("n2", "n1", "n3")]
    gate.set()
    for each in done:
        each.result(60)
    engine.stop()
    order = [item.node for item in journal.inputs() if isinstance(item, FindingsReported)]
    assert order[:4].count("n2") == order[:4].count("n3") == 1
    told_by_n1 = [
        len(item.changes) for item in journal.inputs() if isinstance(item, FindingsReported) and item.node == "n1"
    ]
    assert told_by_n1 == [500] * 8 + [1]
    journal.close()


def test_a_batch_takes_in_only_so_much(journal: Failing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "BATCH_PIECES", 100)
    gate = threading.Event()
    engine = running(journal, idle=lambda _epoch: gate.wait(60) and None)
    until(lambda: engine._batches.number and engine._queue.empty(), "the first batch is not written")
    before = engine._batches.number
    done = [engine.submit_durably(told(f"n{number}", number, 60)) for number in range(10)]
    gate.set()
    for each in done:
        each.result(60)
    assert engine._batches.number >= before + 5
    engine.stop()
    journal.close()


def test_a_term_that_is_over_ends_the_engine_and_lets_everybody_go(journal: Failing) -> None:
    why: list[str] = []
    engine = running(journal, ended=why.append)
    journal.over = True
    done = engine.submit_durably(placed(1))
    with pytest.raises(StoreError, match="is over"):
        done.result(60)
    until(lambda: why == ["epoch 1 is over"], "nobody is told")
    until(lambda: not engine.alive, "it goes on")
    assert engine.may_act() is False
    assert engine.trouble == "epoch 1 is over"
    journal.close()


def test_an_engine_that_dies_of_a_bug_says_so(journal: Failing) -> None:
    why: list[str] = []

    def broken(_snapshot: object) -> None:
        raise RuntimeError("a bug")

    engine = DecisionEngine(journal, settings(), SystemClock(), lambda _snapshot: None, why.append)
    engine._published = broken
    engine._thread.start()
    until(lambda: why, "nobody is told")
    until(lambda: not engine.alive, "it goes on")
    assert "log" in engine.trouble
    journal.close()


def test_being_told_to_stop_is_no_death(journal: Failing) -> None:
    why: list[str] = []
    engine = running(journal, ended=why.append)
    engine.stop()
    assert not engine.alive
    assert why == []
    journal.close()


def test_a_failure_of_tidying_stops_no_decision(journal: Failing) -> None:
    def failing(_epoch: int) -> None:
        raise OperationalError("DELETE", {}, Exception("away"))

    engine = running(journal, idle=failing)
    for number in range(3):
        engine.submit_durably(placed(number)).result(60)
    assert engine.alive
    engine.stop()
    journal.close()


def test_a_caller_who_has_given_up_harms_nobody(journal: Failing) -> None:
    engine = running(journal)
    journal.away.set()
    engine.submit_durably(placed(1)).cancel()
    second = engine.submit_durably(placed(2))
    journal.away.clear()
    second.result(60)
    assert engine.alive
    engine.stop()
    assert [i.jobs[0].attempt for i in journal.inputs() if isinstance(i, PlacementChanged)] == [1, 2], "it is news"
    journal.close()

"""One input that the database refuses keeps no other from being written; a database that refuses everything is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from remediator import pipeline
from remediator.decisions.decision_settings import DecisionSettings
from remediator.engine import batch_writer as module
from remediator.engine import decision_engine as engines
from remediator.engine.batch_writer import BatchWriter, WriterStopped
from remediator.engine.decision_engine import DecisionEngine
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, FindingsReported, HoldsObserved, PlacementChanged, Tick
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.state.cluster_state import ClusterState
from remediator.state.state_changes import StateChanges
from remediator.store.journal import Journal
from tests.timelines.timeline import START, settings
from vocabulary.clock import SystemClock

POISON = "n\ud800"  # half a character is no text: neither JSON nor a column takes it


def placed(node: str, number: int = 0) -> PlacementChanged:
    return PlacementChanged(at=START, node=node, jobs=(JobRef("j", number),))


@pytest.fixture
def journal(database: str) -> Iterator[Journal]:
    made = Journal(database)
    yield made
    made.close()


def beginning(journal: Journal) -> BatchWriter:
    return BatchWriter(journal, journal.lead(), settings(), threading.Event())


@pytest.mark.parametrize("where", [17])
def test_a_poisonous_input_is_set_aside_and_all_others_are_written_in_their_order(journal: Journal, where: int) -> None:
    batches = beginning(journal)
    hold = SchedulerNodeState(node="n0", schedulable=False, owner=HoldOwner.OPERATOR)
    batches.write([placed("n0"), HoldsObserved(at=START, holds=(hold,))])
    items: list[AnyInput] = [placed("n1", number) for number in range(40)]
    items[where] = placed(POISON)
    assert batches.write([*items, Tick(at=START)])
    written = [i.jobs[0].attempt for i in journal.inputs() if isinstance(i, PlacementChanged) and i.node == "n1"]
    assert written == [number for number in range(40) if number != where]
    assert batches.set_aside == journal.count_set_aside() == 1
    assert batches.trouble == ""
    assert batches.state.holds["n0"] == hold, "what the scheduler said is still known"
    with journal.engine.connect() as db:
        why, body = db.execute(text("SELECT why, body FROM set_aside")).one()
    assert "surrogates" in why
    assert b"PlacementChanged" in bytes(body)
    (event,) = [event for _, event in journal.events(0, 100) if event.kind == "input_set_aside"]
    assert "please" not in event.text
    assert "PlacementChanged" in event.text
    again = journal.load()
    assert again.nodes == batches.state.nodes
    assert set(again.nodes) == {"n0", "n1"}


def test_a_name_that_no_column_holds_is_set_aside(postgresql_server: object) -> None:
    journal = Journal(postgresql_server.database())  # type: ignore[attr-defined]  # tests.postgresql.Cluster
    batches = beginning(journal)
    long = FindingsReported(at=START, node="x" * 300, boot_id="b", active=())
    batches.write([placed("n1"), long, placed("n2")])
    assert batches.set_aside == 1
    assert set(journal.load().nodes) == {"n1", "n2"}
    journal.close()


class Broken(Journal):
    """A database that refuses everything, whoever asks."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.broken = True

    def _refuse(self) -> None:
        if self.broken:
            raise ProgrammingError("INSERT", {}, Exception("permission denied"))

    def commit(self, inputs: Sequence[AnyInput], changes: StateChanges, epoch: int, batch: int | None = None) -> None:
        self._refuse()
        super().commit(inputs, changes, epoch, batch)

    def set_aside(self, *given: object) -> None:
        self._refuse()
        super().set_aside(*given)  # type: ignore[arg-type]  # same


def test_what_refuses_everything_is_waited_for_and_nothing_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    journal = Broken(f"sqlite:///{tmp_path}/r.db")
    batches = beginning(journal)
    items = [placed("n1", number) for number in range(9)]
    writing = threading.Thread(target=batches.write, args=(items,))
    writing.start()
    until(lambda: "permission denied" in batches.trouble, "it does not say so")
    journal.broken = False
    writing.join(60)
    assert list(journal.inputs()) == items
    assert (batches.set_aside, batches.trouble) == (0, "")
    journal.close()


def test_time_that_leads_to_what_is_refused_stands_still_for_a_while(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = beginning(journal)

    def handle(state: ClusterState, item: AnyInput, rules: DecisionSettings) -> None:
        pipeline.apply_input(state, item, rules)
        if isinstance(item, Tick):
            state.note(item.at, "k", POISON)

    monkeypatch.setattr(module, "apply_input", handle)
    for number in range(5):
        batches.write([placed("n1", number), Tick(at=START + number)])
    assert batches.set_aside == 1
    assert len([item for item in journal.inputs() if isinstance(item, PlacementChanged)]) == 5
    batches.write([Tick(at=START + module.TICK_PAUSE_S)])
    assert batches.set_aside == 2


def test_being_told_to_stop_ends_the_waiting(tmp_path: Path) -> None:
    journal = Broken(f"sqlite:///{tmp_path}/r.db")
    stopping = threading.Event()
    batches = BatchWriter(journal, journal.lead(), settings(), stopping)
    stopping.set()
    with pytest.raises(WriterStopped):
        batches.write([placed("n1")])
    journal.close()


def until(question: Callable[[], object], words: str) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline, words
        time.sleep(0.01)


class Hanging(Journal):
    """A database that takes a batch and does not answer."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.answers = threading.Event()
        self.answers.set()

    def commit(self, inputs: Sequence[AnyInput], changes: StateChanges, epoch: int, batch: int | None = None) -> None:
        self.answers.wait(60)
        super().commit(inputs, changes, epoch, batch)


def test_a_commit_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "STUCK_S", 0.05)
    journal = Hanging(f"sqlite:///{tmp_path}/r.db")
    engine = DecisionEngine(journal, settings(), SystemClock(), lambda _snapshot: None)
    engine.start()
    journal.answers.clear()
    done = engine.submit_durably(placed("n1"))
    until(lambda: "does not answer" in engine.trouble, "it does not say so")
    assert "does not answer" in engine.overload(), "and takes nothing more"
    assert engine.batch_age_s > 0
    journal.answers.set()
    done.result(60)
    until(lambda: engine.overload() == "", "it does not recover")
    engine.stop()
    assert engine.batch_age_s == 0
    journal.close()


def test_what_was_handed_in_before_the_end_is_written(tmp_path: Path) -> None:
    """Outcomes of what the controller did come last of all, while it stops."""
    journal = Hanging(f"sqlite:///{tmp_path}/r.db")
    engine = DecisionEngine(journal, settings(), SystemClock(), lambda _snapshot: None)
    engine.start()
    journal.answers.clear()
    first = engine.submit_durably(placed("n1"))
    until(lambda: engine.batch_age_s > 0, "it is not at work")
    for number in range(2 * engines.BATCH_MAX):
        engine.submit(placed("n2", number))
    stopping = threading.Thread(target=engine.stop)
    stopping.start()
    until(lambda: engine._asked, "it is not told")
    journal.answers.set()
    stopping.join(60)
    assert first.done()
    written = [item for item in journal.inputs() if isinstance(item, PlacementChanged) and item.node == "n2"]
    assert [item.jobs[0].attempt for item in written] == list(range(2 * engines.BATCH_MAX))
    journal.close()

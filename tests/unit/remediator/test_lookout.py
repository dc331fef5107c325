"""What no report says, told to a real engine on a real database; and what of it a next term finds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remediator.decide.wide import open_wide
from remediator.engine import Engine
from remediator.lookout import Lookout
from remediator.model.inputs import FindingsReported, SilenceObserved, TopologyObserved
from remediator.model.places import Places
from remediator.roster import Roster
from remediator.state import BREAKER
from remediator.store.journal import Journal
from tests.timelines.story import settings
from vocabulary.clock import SystemClock


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(Journal(f"sqlite:///{tmp_path}/r.db"), settings(), SystemClock(), lambda _snapshot: None)
    engine.start()
    engine.submit_durably(FindingsReported(at=time.time(), node="n1", boot_id="b", active=())).result(60)
    yield engine
    engine.stop()


def until(question: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_topology_file_reaches_the_nodes_and_a_broken_one_changes_nothing(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes: {'n*': {rack: r1}}")
    lookout = Lookout(engine, Roster(), SystemClock(), 300.0, path)
    lookout.look()
    until(lambda: engine.snapshot.nodes["n1"].places == Places(rack="r1"))
    path.write_text("nodes: 3")
    os.utime(path, (1, 1))
    lookout.look()
    assert "write 'nodes:'" in lookout.problem
    assert engine.snapshot.nodes["n1"].places == Places(rack="r1")


def test_a_node_that_is_not_heard_any_more_is_told(engine: Engine) -> None:
    lookout = Lookout(engine, Roster(), SystemClock(), 0.0, None)
    time.sleep(0.01)
    lookout.look()
    until(lambda: [f.kind for f in engine.snapshot.findings.values() if f.active] == ["node/silent"])


def test_what_concerns_many_nodes_is_loaded_again(database: str) -> None:
    first = Journal(database)
    epoch, state = first.lead(), first.load()
    open_wide(state, BREAKER, "breaker", "nothing more is isolated", ["n1"], 1.0)
    inputs = [
        TopologyObserved(at=1.0, source="file", places={"n1": Places(rack="r")}),
        SilenceObserved(at=1.0, silent={}),
    ]
    first.commit(inputs, state.take_changes(), epoch)
    first.close()
    second = Journal(database)
    second.lead()
    loaded = second.load()
    assert loaded.incident_of(BREAKER) == state.incident_of(BREAKER)
    assert [i.id for i in loaded.wide()] == [i.id for i in state.wide()]
    assert list(second.inputs()) == inputs
    second.close()

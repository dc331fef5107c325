"""What no report says, told to a real engine on a real database; and what of it a next term finds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from msgspec.structs import replace

from remediator.decisions.group_incidents import open_group_incident
from remediator.engine.decision_engine import DecisionEngine, StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import BREAKER, NodeRecord
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import FindingsReported, SilenceObserved, Tick, TopologyObserved
from remediator.monitoring.fleet_observer import PATIENCE_S, PLACES_S, FleetObserver
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.schedulers.local_scheduler import LocalScheduler
from remediator.schedulers.scheduler_protocol import ReportsLocations
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from remediator.store.journal import Journal
from tests.timelines.timeline import settings
from vocabulary.clock import ManualClock, SystemClock
from vocabulary.health import Health
from vocabulary.messages.wire import Report


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[DecisionEngine]:
    engine = DecisionEngine(Journal(f"sqlite:///{tmp_path}/r.db"), settings(), SystemClock(), lambda _snapshot: None)
    engine.start()
    engine.submit_durably(FindingsReported(at=time.time(), node="n1", boot_id="b", active=())).result(60)
    yield engine
    engine.stop()


class Board:
    """What the fleet_observer needs of an engine: a snapshot, and somewhere to hand in what it saw."""

    def __init__(self) -> None:
        self.snapshot = StateSnapshot(nodes={}, findings={}, incidents={}, actions={}, holds={})
        self.told: list[SilenceObserved] = []

    def submit(self, item: SilenceObserved) -> None:
        self.told.append(item)


def until(question: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_topology_file_reaches_the_nodes_and_a_broken_one_changes_nothing(
    engine: DecisionEngine, tmp_path: Path
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes: {'n*': {rack: r1}}")
    fleet_observer = FleetObserver(engine, ReportRegistry(), SystemClock(), 300.0, path)
    fleet_observer.poll_once()
    until(lambda: engine.snapshot.nodes["n1"].places == NodeLocation(rack="r1"))
    path.write_text("nodes: 3")
    os.utime(path, (1, 1))
    fleet_observer.poll_once()
    assert "write 'nodes:'" in fleet_observer.problem
    assert engine.snapshot.nodes["n1"].places == NodeLocation(rack="r1")


def test_a_node_that_is_not_heard_any_more_is_told(engine: DecisionEngine) -> None:
    fleet_observer = FleetObserver(engine, ReportRegistry(), SystemClock(), 0.0, None)
    time.sleep(0.01)
    fleet_observer.poll_once()
    until(lambda: [f.kind for f in engine.snapshot.findings.values() if f.active] == ["node/silent"])


class Backend:
    """A scheduler that says where nodes stand, or that it cannot be asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.says: dict[str, NodeLocation] | None = None

    def places(self) -> dict[str, NodeLocation] | None:
        self.asked += 1
        return self.says


def test_the_scheduler_says_where_nodes_stand_and_the_file_has_the_last_word(
    engine: DecisionEngine, tmp_path: Path
) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes: {n1: {rack: r9}}")
    clock, backend = ManualClock(), Backend()
    fleet_observer = FleetObserver(engine, ReportRegistry(), clock, 300.0, path, backend)
    fleet_observer.poll_once()
    clock.advance(PLACES_S)
    backend.says = {"n1": NodeLocation(rack="r1", switch="leaf1", partitions=("train",)), "n7": NodeLocation(rack="r1")}
    fleet_observer.poll_once()
    until(lambda: engine.snapshot.nodes["n1"].places == NodeLocation("r9", "leaf1", partitions=("train",)))
    fleet_observer.poll_once()
    assert backend.asked == 2, "once a minute is often enough"
    clock.advance(PLACES_S)
    backend.says = None
    fleet_observer.poll_once()
    engine.submit_durably(Tick(at=time.time())).result(60)
    assert engine.snapshot.nodes["n1"].places.switch == "leaf1", "who cannot be asked takes nothing back"


def test_slurm_and_kubernetes_both_say_where_nodes_stand(tmp_path: Path) -> None:
    ways = [SlurmScheduler(SlurmOptions()), KubernetesScheduler()]
    assert all(isinstance(way, ReportsLocations) for way in ways)
    assert not isinstance(LocalScheduler(tmp_path / "h.json", SystemClock()), ReportsLocations)


def test_the_file_waits_a_while_for_a_scheduler_that_cannot_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("nodes: {n1: {rack: r9}}")
    clock, board = ManualClock(), Board()
    fleet_observer = FleetObserver(cast("DecisionEngine", board), ReportRegistry(), clock, 1e9, path, Backend())
    fleet_observer.poll_once()
    assert [type(item) for item in board.told] == [SilenceObserved]
    clock.advance(PATIENCE_S)
    fleet_observer.poll_once()
    assert [type(item) for item in board.told] == [SilenceObserved, TopologyObserved]


def test_that_there_is_no_file_is_said_once_the_scheduler_has_spoken() -> None:
    clock, board, backend = ManualClock(), Board(), Backend()
    fleet_observer = FleetObserver(cast("DecisionEngine", board), ReportRegistry(), clock, 1e9, None, backend)
    fleet_observer.poll_once()
    clock.advance(PATIENCE_S)
    backend.says = {"n1": NodeLocation(rack="r1")}
    fleet_observer.poll_once()
    fleet_observer.poll_once()
    told = [(item.source, item.places) for item in board.told if isinstance(item, TopologyObserved)]
    assert told == [("backend", backend.says), ("file", {})]


def test_a_part_of_a_look_that_fails_leaves_the_others_their_sight(tmp_path: Path) -> None:
    class Broken(Backend):
        def places(self) -> dict[str, NodeLocation] | None:
            raise KeyError("rack")

    path = tmp_path / "t.yaml"
    path.write_text("nodes: {n1: {rack: r9}}")
    clock, board, backend = ManualClock(), Board(), Broken()
    fleet_observer = FleetObserver(cast("DecisionEngine", board), ReportRegistry(), clock, 1e9, path, backend)
    clock.advance(PATIENCE_S)
    fleet_observer.poll_once()
    assert [type(item) for item in board.told] == [SilenceObserved, TopologyObserved]
    assert fleet_observer.failing == {"silence": False, "scheduler": True, "topology": False}


def test_what_grows_is_let_grow_for_a_moment_so_that_a_dark_rack_is_one_word() -> None:
    clock, board = ManualClock(), Board()
    fleet_observer = FleetObserver(cast("DecisionEngine", board), ReportRegistry(), clock, 0.0, None)
    fleet_observer.poll_once()
    for nodes in (["n1"], ["n1", "n2"], ["n1", "n2"]):
        board.snapshot = replace(board.snapshot, nodes={n: NodeRecord(node=n) for n in nodes})
        clock.advance(5.0)
        fleet_observer.poll_once()
    assert [sorted(item.silent) for item in board.told] == [[], ["n1", "n2"]]
    for number in range(3, 10):
        more = {f"n{n}": NodeRecord(node=f"n{n}") for n in range(1, number)}
        board.snapshot = replace(board.snapshot, nodes=more)
        clock.advance(5.0)
        fleet_observer.poll_once()
    assert len(board.told) == 3, "but it is not waited for ever"


def test_a_new_leader_does_not_take_its_own_ignorance_for_a_sign_of_life(engine: DecisionEngine) -> None:
    now = time.time()
    for n in range(2, 6):
        engine.submit(FindingsReported(at=now, node=f"n{n}", boot_id="b", active=()))
    engine.submit_durably(SilenceObserved(at=now, silent={f"n{n}": now - 400 for n in range(1, 4)})).result(60)
    until(lambda: any(i.wide for i in engine.snapshot.incidents.values()))
    report_registry = ReportRegistry()
    fleet_observer = FleetObserver(engine, report_registry, SystemClock(), 300.0, None)
    fleet_observer.poll_once()
    engine.submit_durably(Tick(at=now + 1)).result(60)
    until(lambda: any(i.wide for i in engine.snapshot.incidents.values()))
    for n in range(1, 4):
        report = Report(
            version=1, node=f"n{n}", boot_id="b", agent="a", seq=1, sent_at=now, ttl_s=9.0, health=Health.HEALTHY
        )
        report_registry.take(report, now)
    fleet_observer.poll_once()
    until(lambda: not engine.snapshot.incidents)


def test_what_concerns_many_nodes_is_loaded_again(database: str) -> None:
    first = Journal(database)
    epoch, state = first.lead(), first.load()
    open_group_incident(state, BREAKER, "breaker", "nothing more is isolated", ["n1"], 1.0)
    inputs = [
        TopologyObserved(at=1.0, source="file", places={"n1": NodeLocation(rack="r")}),
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

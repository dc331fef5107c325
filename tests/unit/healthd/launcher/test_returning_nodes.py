"""When processes are started again on a node, and when not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.process_groups.returning_nodes import ReturningNodes
from healthd.launcher.scheduler_backend import Attempt
from vocabulary.clock import SystemClock


class ScriptedRun:
    """A run in which processes have ended; notes what is started."""

    rank_nodes: Sequence[str] = ("n0",)
    stopped = False
    full = False

    def __init__(self) -> None:
        self.condemned: set[str] = set()
        self.gone: dict[str, list[int]] = {}
        self.started: list[tuple[str, Sequence[int]]] = []

    def vacant(self) -> dict[str, list[int]]:
        return dict(self.gone)

    def start_on(self, node: str, local_ranks: Sequence[int]) -> None:
        if self.full:
            raise OSError("no more processes")
        self.started.append((node, local_ranks))
        self.gone.pop(node, None)


def poll(nodes: ReturningNodes, run: ScriptedRun, now: float) -> None:
    """Once, and once more as soon as the question that was asked is answered."""
    nodes.poll(run, now)
    for thread in threading.enumerate():
        if thread.name == "returning-nodes":
            thread.join(10.0)
    nodes.poll(run, now + 0.5)


Make = Callable[..., ReturningNodes]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(fit: Sequence[str] = ("n1",), pause: float = 10.0, **attempt: object) -> ReturningNodes:
        shape = {"elastic": (1, 2)} | attempt
        started = Attempt(1, "j", ("n0", "n1"), 2, ("x",), swap=True, **shape)  # type: ignore[arg-type]  # by name
        journal = LaunchJournal(tmp_path / "events", "j", SystemClock())
        return ReturningNodes(started, journal, lambda nodes: [n for n in nodes if n in fit], pause, unused=["n9"])

    return make


def test_a_lost_node_that_is_fit_takes_processes_in_its_empty_places_after_a_pause(make: Make, tmp_path: Path) -> None:
    nodes, run = make(), ScriptedRun()
    run.rank_nodes = ("n0", "n0", "n1", "n1")
    run.gone = {"n1": [1]}
    poll(nodes, run, 100.0)
    poll(nodes, run, 109.0)
    assert run.started == []
    poll(nodes, run, 111.0)
    assert run.started == [("n1", [1])]
    event = json.loads((tmp_path / "events").read_text())
    assert (event["event"], event["node"], event["attempt"]) == ("node_returned", "n1", 1)


def test_a_node_that_is_lost_again_waits_twice_as_long(make: Make) -> None:
    nodes, run = make(), ScriptedRun()
    run.rank_nodes = ("n0", "n1")
    for began, pause in ((100.0, 10.0), (200.0, 20.0)):
        run.gone = {"n1": [0]}
        poll(nodes, run, began)
        poll(nodes, run, began + pause - 1)
        assert "n1" in run.gone
        poll(nodes, run, began + pause + 1)
        assert "n1" not in run.gone


def test_a_node_that_is_not_fit_is_asked_again_later(make: Make) -> None:
    fit: list[str] = []
    nodes, run = make(fit), ScriptedRun()
    run.gone = {"n1": [0, 1]}
    for now in (100.0, 111.0):
        poll(nodes, run, now)
    assert run.started == []
    fit.append("n1")
    poll(nodes, run, 130.0)
    assert run.started == [("n1", [0, 1])]


@pytest.mark.parametrize("why", ["condemned", "stopped", "never"])
def test_a_node_does_not_return(make: Make, why: str) -> None:
    nodes = make(pause=0.0 if why == "never" else 10.0)
    run = ScriptedRun()
    run.rank_nodes = ("n0", "n1")
    run.gone = {"n1": [0]}
    run.condemned = {"n1"} if why == "condemned" else set()
    run.stopped = why == "stopped"
    for now in (100.0, 111.0):
        poll(nodes, run, now)
    assert run.started == []


def test_a_node_that_was_never_used_is_taken_while_the_job_has_too_few(make: Make) -> None:
    nodes, run = make(fit=["n9"]), ScriptedRun()
    for now in (100.0, 111.0, 130.0):
        poll(nodes, run, now)
    assert run.started == [("n9", [0, 1])]


@pytest.mark.parametrize("pause", [0.0, 10.0])
def test_a_node_that_the_scheduler_grants_takes_spares_once_it_is_fit(make: Make, pause: float) -> None:
    fit: list[str] = []
    nodes, run = make(fit=fit, pause=pause, elastic=None), ScriptedRun()
    run.condemned = {"n1"}
    nodes.add("n1")  # it was repaired
    poll(nodes, run, 100.0)
    assert run.started == []
    fit.append("n1")
    for now in (200.0, 2000.0, 4000.0):
        poll(nodes, run, now)
    assert run.started == [("n1", [0, 1])]


def test_a_process_that_cannot_be_started_is_told_and_tried_again(make: Make, tmp_path: Path) -> None:
    nodes, run = make(), ScriptedRun()
    run.rank_nodes, run.full = ("n0", "n1"), True
    run.gone = {"n1": [0]}
    for now in (100.0, 111.0):
        poll(nodes, run, now)
    assert "no process can be started there: no more processes" in (tmp_path / "events").read_text()
    run.full = False
    for now in (112.0, 140.0):
        poll(nodes, run, now)
    assert run.started == [("n1", [0])]

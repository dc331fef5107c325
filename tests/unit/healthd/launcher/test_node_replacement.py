"""Which nodes a run gives back while it goes on, and when it asks for others."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.process_groups import node_replacement
from healthd.launcher.process_groups.node_replacement import LOOK_SECONDS, STAY_SECONDS, NodeReplacement
from healthd.launcher.scheduler_backend import Attempt, BackendError
from vocabulary.clock import SystemClock


class Allocation:
    """A scheduler that grants what it is told to."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.here, self.free = list(nodes), list[str]()
        self.released: list[str] = []
        self.requests, self.withdrawn = 0, 0
        self.refuses = self.keeps = False

    def nodes(self) -> Sequence[str]:
        return list(self.here)

    def release(self, node: str) -> None:
        if self.keeps:
            raise BackendError("the batch script runs there")
        self.here.remove(node)
        self.released.append(node)

    def request_node(self, stopped: Callable[[], bool]) -> str | None:
        self.requests += 1
        if self.refuses:
            raise BackendError("not permitted")
        while not self.free and not stopped():
            time.sleep(0.005)
        if not self.free:
            self.withdrawn += 1
            return None
        self.here.append(self.free.pop())
        return self.here[-1]


class Run:
    stopped = False

    def __init__(self) -> None:
        self.condemned: set[str] = set()
        self.living: set[str] = {"n0", "n1", "n2"}
        self.gone: dict[str, list[int]] = {}

    def living_nodes(self) -> set[str]:
        return self.living

    def vacant(self) -> dict[str, list[int]]:
        return self.gone


class Scene:
    def __init__(self, place: Path, elastic: tuple[int, int] | None = None) -> None:
        attempt = Attempt(1, "j", ("n0", "n1"), 1, ("x",), swap=True, spares=("n2",), elastic=elastic)
        self.file = place / "events"
        journal = LaunchJournal(self.file, "j", SystemClock())
        self.allocation, self.run, self.added = Allocation(["n0", "n1", "n2"]), Run(), list[str]()
        self.replacement = NodeReplacement(attempt, journal, self.allocation, self.added.append, lambda: False)
        self.now = 100.0

    def close(self) -> None:
        """No thread of it is left: they wait in short sleeps, which tests after it may count."""
        self.replacement.close()
        for thread in threading.enumerate():
            if thread.name == "node-replacement":
                thread.join(5.0)

    def poll(self, times: int = 4) -> list[str]:
        """Some looks, and the kinds of the events so far."""
        for _ in range(times):
            self.replacement.poll(self.run, self.now)  # type: ignore[arg-type]  # its nodes are sets
            self.now += LOOK_SECONDS
            time.sleep(0.05)
        return [json.loads(line)["event"] for line in self.file.read_text().splitlines()] if self.file.exists() else []


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.close()


def test_a_run_that_loses_nothing_asks_for_nothing(scene: Scene) -> None:
    assert scene.poll() == []
    assert scene.allocation.requests == 0


def test_a_condemned_node_is_given_back_once_its_processes_have_ended_and_another_takes_its_place(scene: Scene) -> None:
    scene.run.condemned = {"n1"}
    assert scene.poll() == []
    scene.run.living -= {"n1"}
    assert scene.poll() == ["node_released", "node_requested"]
    scene.allocation.free = ["n7"]
    assert scene.poll()[2:] == ["node_granted"]
    assert (scene.allocation.released, scene.added, scene.allocation.requests) == (["n1"], ["n7"], 1)


def test_a_node_that_the_job_needs_to_be_queued_again_is_kept_until_another_has_come(scene: Scene) -> None:
    scene.run.condemned, scene.run.living = {"n1", "n2"}, {"n0"}
    scene.poll()
    assert scene.allocation.released == []
    scene.allocation.free = ["n8", "n9"]
    scene.poll(8)
    assert sorted(scene.allocation.released) == ["n1", "n2"]
    assert sorted(scene.added) == ["n8", "n9"]


def test_a_process_that_cannot_be_killed_keeps_its_node_for_a_minute_at_most(scene: Scene) -> None:
    scene.run.condemned = {"n1"}
    scene.poll()
    assert scene.allocation.released == []
    scene.now += STAY_SECONDS
    scene.poll()
    assert scene.allocation.released == ["n1"]


def test_a_node_that_the_scheduler_has_taken_is_replaced_too(scene: Scene) -> None:
    scene.run.gone = {"n1": [0]}
    scene.poll()
    assert scene.allocation.requests == 0, "its processes may be started again"
    scene.allocation.here.remove("n1")
    scene.poll()
    assert scene.allocation.requests == 1


def test_what_the_scheduler_refuses_is_tried_again_and_said_once(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.allocation.refuses = scene.allocation.keeps = True
    scene.run.condemned, scene.run.living = {"n1"}, {"n0", "n2"}
    assert sorted(scene.poll()) == ["node_refused", "node_requested"]
    monkeypatch.setattr(node_replacement, "RELEASE_TRIES", 5)
    events = scene.poll(8)
    assert sorted(events) == ["node_kept", "node_refused", "node_requested"]


def test_a_refused_request_is_repeated_with_growing_pauses(scene: Scene) -> None:
    """slurmctld may only have been restarting."""
    scene.allocation.refuses = True
    scene.run.condemned, scene.run.living = {"n1"}, {"n0", "n2"}
    scene.poll(60)  # two minutes: at once, after 30 s, and a minute after that
    assert scene.allocation.requests == 3
    scene.allocation.refuses, scene.allocation.free = False, ["n7"]
    events = scene.poll(80)
    assert scene.added == ["n7"]
    assert sorted(events) == ["node_granted", "node_refused", "node_released", "node_requested"]


def test_a_request_that_waits_is_withdrawn_when_the_attempt_ends(scene: Scene) -> None:
    scene.run.condemned, scene.run.living = {"n1"}, {"n0", "n2"}
    scene.poll()
    scene.close()
    assert scene.allocation.withdrawn == 1


def test_a_node_that_was_repaired_and_fails_again_is_given_back_again(scene: Scene) -> None:
    scene.run.condemned, scene.run.living = {"n1"}, {"n0", "n2"}
    scene.poll()
    scene.allocation.free = ["n1"]
    scene.poll()
    assert scene.added == ["n1"]
    scene.run.condemned = set()
    scene.run.living = {"n0", "n1", "n2"}
    scene.poll()
    scene.run.condemned, scene.run.living = {"n1"}, {"n0", "n2"}
    scene.allocation.free = ["n5"]
    scene.poll(8)
    assert scene.allocation.released == ["n1", "n1"]
    assert scene.added == ["n1", "n5"]

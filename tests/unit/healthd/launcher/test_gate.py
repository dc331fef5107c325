from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pytest

from healthd.launcher.backends.local_backend import LocalBackend
from healthd.launcher.decisions.relaunch_policy import Fitness
from healthd.launcher.gate import parse_node_verdict, query_node_health
from healthd.launcher.job_definition import JobDefinition
from healthd.launcher.launch_journal import LaunchJournal
from healthd.launcher.node_queries import NodeQueries
from healthd.launcher.scheduler_backend import Answers
from vocabulary.clock import SystemClock


def answer(**changes: object) -> bytes:
    document = {
        "node": "n1",
        "health": "healthy",
        "fit": True,
        "condemned": False,
        "reasons": [],
        "at": 1.0,
        "age_s": 0.4,
    }
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "fitness"),
    [
        ({}, Fitness.FIT),
        ({"health": "degraded"}, Fitness.FIT),
        ({"health": "unknown", "fit": False}, Fitness.UNKNOWN),
        ({"health": "unhealthy", "fit": False, "reasons": ["GPU 3 is lost"]}, Fitness.UNFIT),
        ({"condemned": True, "fit": False}, Fitness.UNFIT),
        ({"condemned": True}, Fitness.UNFIT),
        ({"age_s": 5.5}, Fitness.UNKNOWN),
        ({"age_s": float("nan")}, Fitness.UNKNOWN),
        ({"age_s": -1.0}, Fitness.UNKNOWN),
        ({"age_s": None, "at": time.time()}, Fitness.UNKNOWN),
        ({"age_s": 60, "condemned": True}, Fitness.UNFIT),
    ],
)
def test_only_a_plain_and_fresh_yes_is_fit(changes: dict[str, object], fitness: Fitness) -> None:
    verdict = parse_node_verdict("n1", answer(**changes))

    assert verdict.fitness is fitness
    assert fitness is Fitness.FIT or verdict.reason


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[tuple[str, list[bytes]]]:
    """A socket that answers each connection with the next of a list of byte strings."""
    path, answers = tmp_path / "n1.sock", []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(4096) and answers:
                        connection.sendall(answers.pop(0))

        thread = threading.Thread(target=serve)
        thread.start()
        yield str(tmp_path / "{node}.sock"), answers
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_a_node_is_asked_over_its_socket(daemon: tuple[str, list[bytes]]) -> None:
    template, answers = daemon
    answers.append(http(answer(condemned=True, reasons=["row remap pending"])))

    assert query_node_health(template, "n1") == ("n1", Fitness.UNFIT, "row remap pending")


@pytest.mark.parametrize(
    "said",
    [b"", b"garbage\r\n\r\n", http(b"{}"), http(b"no json"), http(answer(), "503 Service Unavailable"), http(b"[1]")],
)
def test_whatever_prevents_an_answer_is_unknown(daemon: tuple[str, list[bytes]], said: bytes) -> None:
    template, answers = daemon
    answers.append(said)

    verdict = query_node_health(template, "n1")

    assert verdict.fitness is Fitness.UNKNOWN
    assert "no answer from healthd at" in verdict.reason


def test_a_silent_daemon_does_not_hold_the_gate(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        assert query_node_health(str(tmp_path / "s"), "n1", timeout_seconds=0.05).fitness is Fitness.UNKNOWN


def test_the_program_prints_one_line_for_its_node(daemon: tuple[str, list[bytes]]) -> None:
    template, answers = daemon
    answers.append(http(answer()))
    argv = [sys.executable, "-m", "healthd.launcher.gate", template]

    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"HEALTHD_NODE": "n1"})

    assert json.loads(done.stdout) == {"node": "n1", "fitness": "fit", "reason": ""}


class AnsweringNodes(LocalBackend):
    """Nodes that all give the same answer."""

    fitness, reason = "unfit", "gpu-lost"
    off: Collection[str] = ()

    def ask(self, nodes: Sequence[str], *_: object) -> Answers:
        return {node: {"fitness": self.fitness, "reason": self.reason} for node in nodes if node not in self.off}


def test_a_lost_node_that_is_queried_every_few_seconds_fills_no_log(tmp_path: Path) -> None:
    events = tmp_path / "events"
    backend, journal = AnsweringNodes(["n0", "n1"]), LaunchJournal(events, "j", SystemClock())
    queries = NodeQueries(JobDefinition(("x",), 2), backend, journal, lambda: False)

    def count_events() -> int:
        return len(events.read_text().splitlines())

    queries.gate(["n0", "n1"])
    for _ in range(3):
        [verdict] = queries.gate(["n1"], repeated=True)
        assert (verdict.fitness, count_events()) == (Fitness.UNFIT, 1)
    backend.reason = "gpu-slow"
    queries.gate(["n1"], repeated=True)
    assert count_events() == 2
    queries.gate(["n1"])  # of a new attempt
    assert count_events() == 3


def test_a_lost_node_that_answered_before_and_is_silent_now_takes_no_ranks(tmp_path: Path) -> None:
    """It may be off. One whose healthd never answered has none."""
    backend, journal = AnsweringNodes(["n0", "n1"]), LaunchJournal(tmp_path / "events", "j", SystemClock())
    backend.fitness, backend.off = "fit", ["n1"]
    queries = NodeQueries(JobDefinition(("x",), 2), backend, journal, lambda: False)
    queries.gate(["n0", "n1"])
    backend.off = ["n0", "n1"]
    verdicts = queries.mark_silent_nodes_unfit(queries.gate(["n0", "n1"], repeated=True))
    assert [verdict.fitness for verdict in verdicts] == [Fitness.UNFIT, Fitness.UNKNOWN]
    backend.off = []
    verdicts = queries.mark_silent_nodes_unfit(queries.gate(["n0", "n1"], repeated=True))
    assert [verdict.fitness for verdict in verdicts] == [Fitness.FIT, Fitness.FIT]

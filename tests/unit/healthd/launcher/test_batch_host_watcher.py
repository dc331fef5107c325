"""A job whose launcher's node is lost is queued again, and no other job is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.backends import batch_host_guard
from healthd.launcher.backends.batch_host_guard import BatchHostGuard
from healthd.launcher.backends.batch_host_watcher import (
    BatchHostState,
    Connection,
    follow_launcher,
    judge_batch_host,
    wait_for_loss,
)

HOST = {"JobState": "RUNNING", "BatchHost": "n1"}
DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("job", "nodes", "state", "expected"),
    [
        (HOST, ["n1", "n2"], "ALLOCATED", BatchHostState.PRESENT),
        (HOST, ["n1", "n2"], "ALLOCATED+DRAIN", BatchHostState.PRESENT),
        (HOST, ["n1", "n2"], "ALLOCATED+NOT_RESPONDING", BatchHostState.LOST),
        (HOST, ["n1", "n2"], "ALLOCATED*", BatchHostState.LOST),
        (HOST, ["n2"], "DOWN+NOT_RESPONDING", BatchHostState.LOST),
        (HOST, ["n2"], "IDLE", BatchHostState.LOST),  # it was down, and is back without the job
        (HOST | {"JobState": "CANCELLED"}, ["n2"], "DOWN", BatchHostState.JOB_ENDED),
        (HOST | {"JobState": "COMPLETING"}, ["n2"], "DOWN", BatchHostState.JOB_ENDED),
        (HOST | {"JobState": "PENDING"}, [], "DOWN", BatchHostState.JOB_ENDED),
        ({}, [], "", BatchHostState.JOB_ENDED),
    ],
)
def test_what_slurm_says_of_the_launchers_node(
    job: dict[str, str], nodes: list[str], state: str, expected: BatchHostState
) -> None:
    assert judge_batch_host(job, nodes, {"State": state}) is expected


@given(
    st.lists(st.tuples(st.sampled_from(Connection), st.sampled_from(BatchHostState)), max_size=12),
)
def test_only_a_launcher_that_stays_out_of_reach_on_a_lost_node_counts(
    looks: list[tuple[Connection, BatchHostState]],
) -> None:
    """Whatever comes in between: a job that ended, or whose launcher is reached or ended by itself, is left alone."""
    script = [(Connection.BROKEN, BatchHostState.PRESENT), *looks, (Connection.ENDED, BatchHostState.UNKNOWN)]
    pauses: list[float] = []
    lost = wait_for_loss(lambda: script[len(pauses)][0], lambda: script[len(pauses)][1], pauses.append)

    read = script[: len(pauses) + 1]
    if lost:
        assert read[-2:] == [(Connection.FAILED, BatchHostState.LOST)] * 2
    ended = [each for each in read[:-1] if each[0] is Connection.ENDED or each[1] is BatchHostState.JOB_ENDED]
    assert not lost or not ended


def test_a_launcher_that_was_never_reached_is_not_lost() -> None:
    assert not wait_for_loss(lambda: Connection.FAILED, lambda: BatchHostState.LOST, lambda _: None)


def test_a_host_without_power_ends_the_connection() -> None:
    """No packet ends it, so the kernel has to ask."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = {}

        class Recorded(socket.socket):
            def recv(self, *_: object) -> bytes:
                options["keepalive"] = self.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                idle, every, times = (
                    self.getsockopt(socket.IPPROTO_TCP, each)
                    for each in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                )
                options["seconds"] = idle + every * times
                return b""

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "socket", Recorded)
            assert follow_launcher(server.getsockname()[:2]) is Connection.BROKEN
    assert options["keepalive"]
    assert options["seconds"] <= 60


SCONTROL = """#!/bin/sh
echo "$@" >> {place}/asked
case "$*" in
*"show job"*) cat {place}/job ;;
*hostnames*) echo n2 ;;
*"show node"*) cat {place}/node ;;
requeue*) test ! -e {place}/refuse || {{ echo "Requested operation is presently disabled" >&2; exit 1; }} ;;
esac
"""


class Watched:
    """A launcher's node, in a process of its own, and a Slurm that says what the test writes."""

    def __init__(self, place: Path) -> None:
        self.place, self.events = place, place / "events"
        (place / "bin").mkdir()
        program = place / "bin" / "scontrol"
        program.write_text(SCONTROL.format(place=place))
        program.chmod(0o755)
        self.set("RUNNING", "ALLOCATED")
        script = f"""
import subprocess, sys, time
from healthd.launcher.backends.batch_host_guard import BatchHostGuard
def start(node, port):
    argv = [sys.executable, "-m", "healthd.launcher.backends.batch_host_watcher", "127.0.0.1", str(port), "7", "{self.events}"]
    watcher = subprocess.Popen(argv, start_new_session=True)
    open("{place}/watcher", "w").write(str(watcher.pid))
    return watcher
guard = BatchHostGuard(start, lambda: ["n2"])
with guard:
    while not guard._connections:
        time.sleep(0.02)
    open("{place}/connected", "w").close()
    sys.stdin.read()
"""
        env = {**os.environ, "PATH": f"{place}/bin:{os.environ['PATH']}", "PYTHONPATH": str(Path.cwd())}
        self.launcher = subprocess.Popen([sys.executable, "-c", script], env=env, stdin=subprocess.PIPE)
        self.until(lambda: (place / "watcher").exists() and (place / "watcher").read_text(), "a watcher")
        self.watcher = int((place / "watcher").read_text())

    def set(self, job: str, node: str) -> None:
        (self.place / "job").write_text(f"JobId=7 JobState={job} NodeList=n2 BatchFlag=1 BatchHost=n1 Requeue=1")
        (self.place / "node").write_text(f"NodeName=n1 State={node}")

    def asked(self) -> list[str]:
        file = self.place / "asked"
        return file.read_text().splitlines() if file.exists() else []

    def runs(self) -> bool:
        try:
            return "batch_host_watcher" in Path(f"/proc/{self.watcher}/cmdline").read_text()
        except OSError:
            return False

    @staticmethod
    def until(what: Callable[[], object], why: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < end, why
            time.sleep(0.05)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    found = Watched(tmp_path)
    found.until((tmp_path / "connected").exists, "a connection")
    yield found
    found.launcher.kill()
    found.launcher.communicate()
    if found.runs():
        os.kill(found.watcher, signal.SIGKILL)


def test_the_job_is_queued_again_once_the_launchers_node_is_lost(watched: Watched) -> None:
    watched.set("RUNNING", "DOWN")
    watched.launcher.kill()
    watched.until(lambda: "requeue 7" in watched.asked(), "a requeue")
    [event] = [json.loads(line) for line in watched.events.read_text().splitlines()]
    assert (event["event"], event["job"]) == ("requeuing", "7")
    watched.until(lambda: not watched.runs(), "the watcher to end")


def test_a_job_that_slurm_does_not_queue_again_is_named(watched: Watched) -> None:
    (watched.place / "refuse").touch()
    watched.set("RUNNING", "DOWN")
    watched.launcher.kill()
    watched.until(lambda: watched.events.exists() and "scancel 7" in watched.events.read_text(), "the event")


def test_a_cancelled_job_is_left_alone(watched: Watched) -> None:
    watched.set("CANCELLED", "DOWN")
    watched.launcher.kill()
    watched.until(lambda: not watched.runs(), "the watcher to end")
    assert "requeue 7" not in watched.asked()
    assert not watched.events.exists()


def test_a_launcher_that_ends_by_itself_ends_its_watcher_without_a_question(watched: Watched) -> None:
    watched.set("RUNNING", "DOWN")
    watched.launcher.communicate()
    watched.until(lambda: not watched.runs(), "the watcher to end")
    assert watched.asked() == []


def test_a_lost_watcher_is_started_again_on_the_next_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_host_guard, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(batch_host_guard, "POLL_SECONDS", 0.01)
    nodes: list[str] = []

    def start(node: str, _port: int) -> subprocess.Popen[bytes]:
        nodes.append(node)
        return subprocess.Popen(["false"])

    with BatchHostGuard(start, lambda: ["n2", "n3"]):
        Watched.until(lambda: len(nodes) >= 3, "three starts")
    assert nodes[:3] == ["n2", "n3", "n2"]

"""A real healthd beside a job that contains none of our code: only a service that speaks NCCL's RAS protocol."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from healthd_node import Node, eventually

from tests.nodes.nccl_ras.documents import Gone, answer, communicator, write_answer
from tests.nodes.nccl_ras.server import RasServer

MakeNode = Callable[..., Node]
RANKS = 8
LIMITS = {"still_after_s": 1, "start_after_s": 60, "forget_after_s": 3}


class Job:
    """A job of one node: its ranks call on, but for those that stand still."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.hung_at: float | None = None
        self.missing: int | None = None
        self.dead: int | None = None

    def hang(self, missing: int | None = None, dead: int | None = None) -> None:
        self.hung_at, self.missing, self.dead = time.monotonic(), missing, dead

    def status(self) -> bytes:
        """Fifty calls a second; RAS asks the ranks one after the other, so that a moving job's counts differ."""
        calls = int(((self.hung_at or time.monotonic()) - self.began) * 50)
        counts: dict[int, Any] = dict.fromkeys(range(RANKS), (0, 0, 0, calls, calls))
        if self.hung_at is None:
            counts = {n: (0, 0, 0, calls + n, calls) for n in range(RANKS)}
        if self.missing is not None:
            counts[self.missing] = (0, 0, 0, calls, calls - 1)
        if self.dead is not None:
            counts[self.dead] = Gone()
        return write_answer(answer([communicator("0xab", counts)]), without_comma=True).replace(
            b"10.0.0.1", b"127.0.0.1"
        )


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def server(job: Job) -> Iterator[RasServer]:
    with RasServer(job.status) as server:
        yield server


@pytest.fixture
def node(make_node: MakeNode, tmp_path: Path, server: RasServer) -> Node:
    (tmp_path / "kern.log").touch()
    source = {"every_s": 0.1, "options": {"address": [f"127.0.0.1:{server.port}"]}}
    node = make_node(kernel_log=tmp_path / "kern.log", sources={"nccl_ras": source}, thresholds={"nccl": LIMITS})
    node.gpus(*node.preset("h100x8"), f"process.0 {os.getpid()} 1048576")
    node.start()
    return node


def nccl_findings(node: Node) -> dict[str, Any]:
    return {f["code"]: f for f in node.get("/v1/findings")["findings"] if f["check"] == "nccl"}


def asked(server: RasServer, times: int) -> bool:
    return server.commands.count("VERBOSE STATUS") >= times


def test_the_missing_rank_of_a_foreign_job_is_named_until_the_job_goes_on(
    node: Node, server: RasServer, job: Job
) -> None:
    eventually(lambda: asked(server, 30), lambda: f"it asks: {server.commands[-3:]} {node.log()}")
    assert nccl_findings(node) == {}, "a moving job's counts differ"
    job.hang(missing=5)
    found = eventually(lambda: nccl_findings(node).get("rank_missing"), node.log)
    assert found["severity"] == "warning"
    assert (found["evidence"]["rank"], found["evidence"]["pid"], found["evidence"]["gpu"]) == (5, 4005, 5)
    assert "rank 5 of 8 (host 127.0.0.1, pid 4005, GPU 5)" in found["summary"]
    assert found["evidence"]["waiting"] == 7
    job.hung_at = job.missing = None
    eventually(lambda: not nccl_findings(node), node.log)


def test_a_dead_rank_is_named_and_a_hung_gpu_is_not_guessed(node: Node, server: RasServer, job: Job) -> None:
    eventually(lambda: asked(server, 30), "it asks")
    job.hang()
    before = len(server.commands)
    eventually(lambda: len(server.commands) > before + 40 * 4, "forty more readings of equal counts")
    assert nccl_findings(node) == {}
    job.dead = 2
    assert "rank 2 of 8" in eventually(lambda: nccl_findings(node).get("rank_silent"), node.log)["summary"]


def test_attacks_leave_healthd_as_it_was(node: Node, server: RasServer, job: Job) -> None:
    """The other sources go on, no process is left, and what was read before is read again."""
    eventually(lambda: asked(server, 5), "it asks")
    assert node.process is not None
    pid = node.process.pid
    lies = itertools.cycle((b"", b"[" * 10_000, b'{"communicators": 7}', b"\xff\x00", job.status()[:200]))
    proper, server._status = server._status, lambda: next(lies)
    for manner in ("proper", "closing", "flooding", "old", "silent"):
        server.manner = manner
        before = len(server.commands)
        eventually(lambda: len(server.commands) > before, lambda: f"{manner}: it asks again", 90)  # noqa: B023 - called before the next turn
    server.manner, server._status = "proper", proper
    before = len(server.commands)
    eventually(lambda: len(server.commands) > before + 40 * 4, "it reads every time again", 90)
    assert node.process.pid == pid
    assert node.process.poll() is None
    found = node.get("/v1/findings")["findings"]
    assert [f for f in found if f["check"] in ("source", "check", "process_start", "nccl")] == []
    assert node.stop() == 0


def test_a_job_that_ends_takes_its_finding_with_it(node: Node, server: RasServer, job: Job) -> None:
    eventually(lambda: asked(server, 30), "it asks")
    job.hang(missing=1)
    eventually(lambda: nccl_findings(node), node.log)
    server.__exit__()
    eventually(lambda: not nccl_findings(node), node.log)


def test_a_killed_source_child_leaves_no_process_behind(node: Node, server: RasServer) -> None:
    server.manner = "silent"
    eventually(lambda: server.commands, "it asks")
    assert node.process is not None
    children = [
        int(pid) for pid in Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text().split()
    ]
    (source_child,) = (pid for pid in children if b"healthd.source_child" in Path(f"/proc/{pid}/cmdline").read_bytes())
    forked = eventually(
        lambda: Path(f"/proc/{source_child}/task/{source_child}/children").read_text().split(), "it waits in a fork"
    )
    os.kill(source_child, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{forked[0]}").exists(), "the fork ends by its alarm")

"""A state disk that hangs: no error comes, a write simply does not end. The filesystem is a real one, frozen by the kernel.

And a main loop that hangs, which is what such a disk once did to healthd.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from frozen_disk import FreezableDisk
from healthd_node import Node, eventually
from stub_controller import StubController

from healthd.launcher.decisions.relaunch_policy import Fitness
from healthd.launcher.gate import query_node_health
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from vocabulary.health import Health
from vocabulary.order import Order, OrderKind, OrderState

MakeNode = Callable[..., Node]
PROLOG = Path(__file__).parents[2] / "deploy" / "slurm" / "prolog.sh"
PTRACE_ATTACH, PTRACE_DETACH, WALL = 16, 17, 0x40000000

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount and freeze a filesystem")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[FreezableDisk]:
    try:
        disk = FreezableDisk(tmp_path / "image", tmp_path / "disk")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no filesystem can be mounted here: {error}")
    yield disk
    disk.close()


@pytest.fixture
def controller() -> Iterator[StubController]:
    controller = StubController()
    yield controller
    controller.close()


@pytest.fixture
def node(disk: FreezableDisk, controller: StubController, make_node: MakeNode, tmp_path: Path) -> Iterator[Node]:
    """Its state, and nothing else, is on the disk."""
    node = make_node(
        kernel_log=tmp_path / "kern.log",
        state_dir=str(disk.place / "state"),
        remediator=controller.configuration(tmp_path),
    )
    node.start()
    eventually(lambda: node.verdict()["fit"], "a healthy node")
    yield node
    node.close()


def counts(node: Node) -> dict[str, int]:
    return {kind: finding.get("count", 1) for kind, finding in node.findings().items()}


def prolog_refuses(node: Node) -> str:
    """Slurm's prolog itself, asking healthd alone; why no job begins on this node."""
    log, conf = node.place / "prolog.log", node.place / "prolog.conf"
    conf.write_text(f"BIN={Path(sys.executable).parent}\nSOCKET={node.socket}\nPREFLIGHT=\nLOG={log}\n")
    environment = os.environ | {"GPU_HEALTHD_PROLOG_CONF": str(conf), "SLURMD_NODENAME": node.name}
    assert subprocess.run(["sh", str(PROLOG)], env=environment, check=False).returncode == 1
    return log.read_text()


def test_a_hung_disk_is_said_aloud_and_blinds_nobody(
    node: Node, disk: FreezableDisk, controller: StubController
) -> None:
    with disk.frozen():
        node.xid(79, gpu=3)
        eventually(lambda: {"xid/79@3", "outbox/overdue"} <= set(node.findings()), "both facts, from memory")
        document = node.get("/v1/findings")
        assert {f["id"] for f in document["findings"]} == set(document["unwritten"])
        verdict = node.verdict()
        assert (verdict["health"], verdict["fit"]) == ("unhealthy", False)
        assert any("has not ended within 2 s" in reason for reason in verdict["reasons"])
        assert query_node_health(str(node.socket), node.name).fitness is Fitness.UNFIT
        assert "has not ended within 2 s" in prolog_refuses(node)
        eventually(
            lambda: any({"xid/79", "outbox/overdue"} <= {f.kind for f in r.active} for r in controller.reports),
            "a report",
        )
        assert controller.reports[-1].health is Health.UNHEALTHY
        assert not controller.changes, "what is not durable has no number"
        node.xid(48, gpu=1)  # sampling and judging go on
        eventually(lambda: "xid/48@1" in node.findings(), "a fault that came later")
        eventually(lambda: any(f.code == "48" for r in controller.reports for f in r.active), "a report of that one")
        page = node.get("/metrics")
        assert "healthd_outbox_unwritten_findings 3.0" in page
        assert "healthd_node_fit 0.0" in page
    eventually(lambda: set(node.findings()) == {"xid/79@3", "xid/48@1"}, "the disk is back, the complaint has gone")
    assert node.get("/v1/findings")["unwritten"] == []
    eventually(lambda: {"79", "48"} <= {f.code for f in controller.changes.values()}, "the changes, after all")
    numbers = [change.seq for report in controller.reports for change in report.changes]
    assert sorted(set(numbers)) == numbers, "each change once, in order"
    eventually(lambda: "healthd_outbox_waiting_changes 0.0" in node.get("/metrics"), "all acknowledged")
    node.kill()
    node.start()
    assert counts(node) == {"xid/79@3": 1, "xid/48@1": 1}


def test_an_idle_node_notices_a_hung_disk_too(node: Node, disk: FreezableDisk) -> None:
    with disk.frozen():
        eventually(lambda: "outbox/overdue" in node.findings(), "nothing had to be written, and still")
        assert node.verdict()["fit"] is False
    eventually(lambda: node.verdict()["fit"], "it is over")


def test_killed_while_the_disk_hangs_it_counts_every_line_once(node: Node, disk: FreezableDisk) -> None:
    node.xid(79, gpu=3)
    eventually(lambda: "xid/79@3" in node.findings(), "a durable finding")
    assert node.process is not None
    with disk.frozen():
        node.xid(79, gpu=3)
        node.xid(48, gpu=1)
        eventually(lambda: {"xid/48@1", "outbox/overdue"} <= set(node.findings()), "what is in memory only")
        node.process.send_signal(signal.SIGKILL)
    node.process.wait(60)
    node.start()
    eventually(lambda: counts(node) == {"xid/79@3": 2, "xid/48@1": 1}, lambda: str(counts(node)))


def test_told_to_stop_while_the_disk_hangs_it_stops_and_loses_nothing(node: Node, disk: FreezableDisk) -> None:
    assert node.process is not None
    with disk.frozen():
        node.xid(48, gpu=1)
        eventually(lambda: "outbox/overdue" in node.findings(), "it hangs")
        node.process.send_signal(signal.SIGTERM)
        # All but the thread in the write has ended. That one the kernel itself cannot end before the disk answers.
        eventually(lambda: _main_thread_state(node.process.pid) in "ZX", node.log)
        assert not node.socket.exists()
        assert "not everything could be written" in node.log()
    assert node.process.wait(60) == 0
    node.start()
    eventually(lambda: counts(node) == {"xid/48@1": 1}, lambda: str(counts(node)))


def test_a_trainer_is_ordered_to_leave_although_the_disk_hangs(
    node: Node, disk: FreezableDisk, controller: StubController
) -> None:
    now = time.time()
    beacon = Beacon.create(str(node.beacons), RankPlacement("j", 1, 0, 1, 0, node.name))
    base = {"node": node.name, "incident": "i", "reason": "a test", "issued_at": now, "expires_at": now + 300}
    with disk.frozen():
        node.xid(48, gpu=1)
        eventually(lambda: "outbox/overdue" in node.findings(), "it hangs")
        controller.issue(Order(id="test", kind=OrderKind.RUN_PREFLIGHT, condemned=(node.name,), **base))  # type: ignore[arg-type]  # by name
        controller.issue(Order(id="leave", kind=OrderKind.ABORT, job="j", **base))  # type: ignore[arg-type]  # by name
        assert eventually(beacon.poll, "the order in the mailbox").id == "leave"
        assert controller.answer("leave") is None, "nothing is answered that is not durable"
        assert controller.answer("test") is None
    eventually(lambda: controller.answer("leave"), "an answer, now that it is durable")
    ended = eventually(lambda: controller.ended("test"), "the other order was done after all")
    assert ended.state in (OrderState.SUCCEEDED, OrderState.FAILED, OrderState.REFUSED)
    assert [m.state for m in controller.heard if getattr(m, "id", "") == "test"].count(OrderState.RECEIVED) <= 1
    beacon.close()


def test_a_main_loop_that_stands_still_is_no_fit_node(node: Node) -> None:
    """The kernel stops that one thread; the others go on and answer."""
    assert node.process is not None
    with _stopped_thread(node):
        unknown = eventually(
            lambda: (v := node.verdict())["health"] == "unknown" and v, lambda: str(node.verdict()), within_s=60
        )
        assert unknown["fit"] is False
        assert unknown["age_s"] >= 5  # rounded
        assert "no report from healthd's main loop" in unknown["reasons"][0]
        assert query_node_health(str(node.socket), node.name).fitness is Fitness.UNKNOWN
        assert "healthd_node_fit 0.0" in node.get("/metrics")
        check = [sys.executable, "-m", "healthctl", "node", "check", "--socket", str(node.socket)]
        assert subprocess.run(check, check=False, capture_output=True).returncode == 3
    eventually(lambda: node.verdict()["fit"], "it goes on")


@contextlib.contextmanager
def _stopped_thread(node: Node) -> Iterator[None]:
    """Stop the main thread alone, at a moment at which it does not keep the others from running."""
    assert node.process is not None
    pid, libc = node.process.pid, ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    while True:
        assert libc.ptrace(PTRACE_ATTACH, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        os.waitpid(pid, WALL)
        if _answers(node):
            break
        libc.ptrace(PTRACE_DETACH, pid, None, None)
    try:
        yield
    finally:
        libc.ptrace(PTRACE_DETACH, pid, None, None)


def _answers(node: Node) -> bool:
    with socket.socket(socket.AF_UNIX) as asked, contextlib.suppress(TimeoutError):
        asked.settimeout(2)
        asked.connect(str(node.socket))
        asked.sendall(b"GET /v1/verdict HTTP/1.0\r\n\r\n")
        return bool(asked.recv(100))
    return False


def _main_thread_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_database_cut_to_nothing_is_lost_and_the_node_stays_condemned(
    make_node: MakeNode, controller: StubController, tmp_path: Path
) -> None:
    node = make_node(
        kernel_log=tmp_path / "kern.log",
        remediator=controller.configuration(tmp_path),
        orders={"preflight_command": [sys.executable, "-c", "import sys; sys.exit(1)"]},
    )
    database = node.place / "state" / "healthd.db"
    node.start()
    now = time.time()
    base = {"node": node.name, "incident": "i", "reason": "a test", "issued_at": now, "expires_at": now + 300}
    controller.issue(Order(id="o", kind=OrderKind.RUN_PREFLIGHT, condemned=(node.name,), **base))  # type: ignore[arg-type]  # by name
    eventually(lambda: controller.ended("o"), "the order has ended, and the node has not passed")
    assert node.verdict()["condemned"] is True
    for damage in ("empty", "missing", "garbage"):
        node.kill()
        for suffix in ("", "-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        if damage != "missing":
            database.write_bytes(b"" if damage == "empty" else b"garbage" * 4096)
        node.start()
        assert node.verdict()["condemned"] is True, damage
        assert "outbox/corrupt" in eventually(node.findings, f"{damage}: it says so")
    assert json.loads((database.parent / "history.json").read_text())["condemned"]["order"] == "o"

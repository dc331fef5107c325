"""The RAS source: jobs over time, services that answer, hang or lie, and services in another network namespace."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from healthd.checks.nccl_ras_checks import Limits, NcclRasCheck
from healthd.collectors import nccl_ras
from healthd.collectors.machine_access import MachineAccess
from healthd.collectors.nccl_ras import NcclRasSample, RasJob, RasSuspect, read_nccl_ras
from healthd.findings.facts import Moment, Raise
from healthd.source_child import read_source
from tests.nodes.nccl_ras.documents import Gone, answer, communicator, write_answer
from tests.nodes.nccl_ras.server import RasServer

Build = Callable[[Mapping[str, str]], MachineAccess]
LIMITS = Limits(still_after_s=9, start_after_s=300, forget_after_s=60)
RANK_5 = RasSuspect(5, 8, "10.0.0.1", 4005, 5)
LOOKS_S = 3.0


def job(
    *, moved: bool, least: int = 9, kind: str = "rank_missing", suspects: tuple[RasSuspect, ...] = (RANK_5,)
) -> RasJob:
    return RasJob("10.0.0.1/4000", moved, least, 8, 7, kind, len(suspects), suspects)


class Watched:
    """A check, and the readings that it has had."""

    def __init__(self) -> None:
        self.check = NcclRasCheck(LIMITS)
        self.at = 1000.0
        self.least = 0

    def look(self, *jobs: RasJob) -> list[Raise]:
        self.at += LOOKS_S
        facts = self.check.judge(NcclRasSample(self.at, 1, jobs), Moment(1_700_000_000.0 + self.at, self.at))
        self.unknown = [fact for fact in facts if not isinstance(fact, Raise)]
        return [fact for fact in facts if isinstance(fact, Raise)]

    def move(self, times: int = 12, *, slowest: int = 1) -> None:
        """Readings at which some rank, and the slowest by so many collectives, had got on."""
        for _ in range(times):
            self.least += slowest
            assert self.look(job(moved=True, least=self.least)) == []

    def still(self, seconds: float, **what: Any) -> list[float]:
        """Seconds after which it was reported, of a pause that lasts as long."""
        return [(look + 1) * LOOKS_S for look in range(int(seconds / LOOKS_S)) if self.look(job(moved=False, **what))]


def test_a_job_that_moved_and_stands_still_is_reported_with_the_rank_it_waits_for() -> None:
    watched = Watched()
    watched.move()
    assert watched.still(9) == [9]
    (fact,) = watched.look(job(moved=False))
    assert (fact.check, fact.code, fact.component.name) == ("nccl", "rank_missing", "nccl 10.0.0.1/4000")
    assert "rank 5 of 8 (host 10.0.0.1, pid 4005, GPU 5) has not made" in fact.summary
    assert fact.evidence == {
        "job": "10.0.0.1/4000",
        "ranks": 8,
        "waiting": 7,
        "still_s": 12,
        "suspects": "rank 5 of 8 (host 10.0.0.1, pid 4005, GPU 5)",
        "rank": 5,
        "host": "10.0.0.1",
        "pid": 4005,
        "gpu": 5,
    }
    assert watched.look(job(moved=True)) == []


def test_counts_that_say_nothing_are_not_reported() -> None:
    watched = Watched()
    watched.move()
    assert watched.still(600, kind="", suspects=()) == []


def test_a_job_whose_pace_is_unknown_gets_the_time_to_compile() -> None:
    watched = Watched()
    watched.move(5)
    assert watched.still(330)[:1] == [300]


def test_while_one_rank_compiles_the_progress_of_others_is_no_pace() -> None:
    watched = Watched()
    watched.move(60, slowest=0)
    assert watched.still(330)[:1] == [300]


def test_a_job_of_long_steps_may_stand_still_for_three_times_its_usual_pause() -> None:
    watched = Watched()
    watched.move()
    for _ in range(12):
        watched.still(60, kind="", suspects=())
        watched.look(job(moved=True))
    assert watched.still(300)[:1] == [180]


def test_the_same_rank_may_keep_the_others_waiting_again_as_when_it_saves() -> None:
    watched = Watched()
    watched.move()
    assert watched.still(60)[:1] == [9], "nobody knows that it is a save"
    watched.move(30)
    assert watched.still(60) == []
    watched.move(30)
    assert watched.still(60, suspects=(RANK_5._replace(rank=4, gpu=4),))[:1] == [9], "another rank never did"


def test_a_job_that_does_not_answer_is_unknown_and_then_forgotten() -> None:
    watched = Watched()
    watched.move()
    watched.still(9)
    for _ in range(20):
        assert watched.look() == []
        assert watched.unknown, "what was reported stays"
    watched.look()
    assert watched.unknown == []


def test_many_suspects_are_counted_and_some_named() -> None:
    watched = Watched()
    watched.move()
    many = tuple(RasSuspect(n, 64, "10.0.0.2", 4000 + n, n) for n in range(8))
    watched.still(9, suspects=many)
    (fact,) = watched.look(job(moved=False, suspects=many))
    assert " and 4 more has not" in fact.summary
    assert len(fact.summary) <= 300
    assert "rank" not in fact.evidence


COUNTS: dict[int, Sequence[int] | Gone] = {n: (0, 0, 0, 0, 9 if n == 5 else 10) for n in range(8)}
STATUS = write_answer(answer([communicator("0xab", COUNTS)])).replace(b"10.0.0.1", b"127.0.0.1")


@pytest.fixture(autouse=True)
def _cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers cost nothing: readings follow one another at once."""
    monkeypatch.setattr(nccl_ras, "CPU_SHARE", 1e9)


def ask(server: RasServer, machine: MachineAccess | None = None) -> NcclRasSample:
    """One reading, for this process as the one on a GPU."""
    machine = machine or MachineAccess()
    machine.gpu_pids = {os.getpid(): False, 2**22 + 1: True}
    return read_nccl_ras(machine, {"address": (f"127.0.0.1:{server.port}",)})


def test_without_a_process_on_a_gpu_nobody_is_asked(machine: Build) -> None:
    with RasServer(lambda: STATUS) as server:
        sample = read_nccl_ras(machine({}), {"address": (f"127.0.0.1:{server.port}",)})
    assert (sample.asked, sample.jobs, server.commands) == (0, (), [])


def test_the_answer_is_reduced_to_who_is_missing() -> None:
    with RasServer(lambda: STATUS) as server:
        sample = ask(server)
    assert server.commands == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "SET FORMAT json", "VERBOSE STATUS"]
    assert sample.jobs == (
        RasJob("127.0.0.1/4000", True, 9, 8, 7, "rank_missing", 1, (RANK_5._replace(host="127.0.0.1"),)),
    )
    assert len(json.dumps(sample)) < 400


@pytest.mark.parametrize("host", ["", "0.0.0.1", "nonsense"])
def test_an_answer_without_ranks_here_is_no_job_of_this_node(host: str) -> None:
    nothing = write_answer(answer([communicator("0xab", {0: Gone()})] if host else []))
    with RasServer(lambda: nothing) as server:
        assert ask(server).jobs == ()
    with RasServer(lambda: STATUS.replace(b"127.0.0.1", (host or "unknown").encode())) as server:
        assert ask(server).jobs == ()


def test_movement_is_seen_from_one_reading_to_the_next() -> None:
    machine, statuses = MachineAccess(), iter([STATUS, STATUS, STATUS.replace(b'"AllReduce": 9', b'"AllReduce": 10')])
    with RasServer(lambda: next(statuses)) as server:
        assert [ask(server, machine).jobs[0].moved for _ in range(3)] == [True, False, True]


def test_only_the_node_of_the_first_rank_reports_and_the_others_ask_rarely() -> None:
    machine, readings = MachineAccess(), 2 * nccl_ras.RARELY
    with RasServer(lambda: STATUS.replace(b"127.0.0.1", b"203.0.113.7")) as server:
        samples = [ask(server, machine) for _ in range(readings)]
        assert [sample.asked for sample in samples] == [1, *[0] * (nccl_ras.RARELY - 1)] * 2
        assert not any(sample.jobs for sample in samples)


def test_an_expensive_answer_is_asked_for_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = MachineAccess()
    with RasServer(lambda: STATUS) as server:
        assert ask(server, machine).asked == 1
        monkeypatch.setattr(nccl_ras, "CPU_SHARE", 1e-6)
        assert ask(server, machine).asked == 1, "the last one cost little"
        assert ask(server, machine).asked == 0


def list_children() -> set[str]:
    """This process's children; other tests may have left some."""
    return {pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()}


@pytest.mark.parametrize(
    ("manner", "status", "problem"),
    [
        ("silent", STATUS, "timed out|complete answer in time"),
        ("dripping", STATUS, "timed out|complete answer in time"),
        ("closing", STATUS, "not a RAS status"),
        ("flooding", STATUS, "more than 16 MiB"),
        ("old", STATUS, "SET FORMAT json: ERROR"),
        ("proper", b"", "not a RAS status"),
        ("proper", b"[" * 100_000, "not a RAS status"),
        ("proper", b'{"communicators": [' + b"[]," * 5_000_000 + b"[]]}", "in time, or too large|not a RAS status"),
        ("proper", STATUS.replace(b'"pid": 4003', b'"pid": {}'), "not a RAS status"),
    ],
)
def test_a_service_that_hangs_floods_or_lies_harms_nobody(
    manner: str, status: bytes, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_ras, "QUERY_S", 1.0 if manner in ("silent", "dripping") else 20.0)
    machine = MachineAccess()
    before = list_children()
    with RasServer(lambda: status, manner) as server:
        sample = ask(server, machine)
        assert sample.jobs == ()
        assert any(word in sample.problem for word in problem.split("|")), sample.problem
        assert list_children() <= before
    with RasServer(lambda: STATUS) as server:
        for _ in range(nccl_ras.RARELY):
            sample = ask(server, machine)
        assert len(sample.jobs) == 1


def test_a_process_that_hangs_is_killed_and_another_may_be_asked() -> None:
    machine = MachineAccess()
    assert machine.run_forked(lambda: time.sleep(60) or b"", 0.3) is None
    assert machine.run_forked(lambda: b"x" * 300_000, 20) == b"x" * 300_000
    assert machine.run_forked(lambda: b"%d" % len(bytearray(1 << 30)), 20) is None, "its memory is limited"
    assert machine.run_forked(lambda: bytes(-1), 20) is None, "it fails"


def test_a_rank_here_whose_gpu_is_busy_is_no_suspect() -> None:
    """Its pid is compared with that of its own pid namespace; elsewhere, nothing is known of its GPU."""
    with RasServer(lambda: STATUS.replace(b'"pid": 4005', b'"pid": %d' % os.getpid())) as server:
        address = {"address": (f"127.0.0.1:{server.port}",)}
        machine = MachineAccess()
        machine.gpu_pids = {os.getpid(): True}
        assert read_nccl_ras(machine, address).jobs[0].kind == "stalled"
        machine.gpu_pids = {os.getpid(): False}
        assert read_nccl_ras(machine, address).jobs[0].kind == "rank_missing"


def test_the_pid_of_a_container_is_found_by_that_of_the_node(machine: Build) -> None:
    files = {"/proc/70/status": "Name:\tpython\nNSpid:\t70\t9\n", "/proc/80/status": "Name:\tpython\nNSpid:\t80\n"}
    assert [nccl_ras._inner_pid(machine(files), pid) for pid in (70, 80, 90)] == [9, 80, 90]


def test_a_communicator_that_was_not_reported_once_is_not_new_when_it_is_again() -> None:
    local = answer([communicator("0xab", COUNTS), communicator("0xcd", dict.fromkeys(range(8), (1, 0, 0, 0, 0)))])
    both = write_answer(local).replace(b"10.0.0.1", b"127.0.0.1")
    machine, statuses = MachineAccess(), iter([both, STATUS, both])
    with RasServer(lambda: next(statuses)) as server:
        assert [ask(server, machine).jobs[0].moved for _ in range(3)] == [True, False, False]


def test_a_process_whose_parent_was_killed_ends_by_itself() -> None:
    code = (
        "import time, healthd.collectors.machine_access as m; m.MachineAccess().run_forked(lambda: time.sleep(60), 1.0)"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        while not (forked := children.read_text().split()):
            time.sleep(0.01)
        parent.kill()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{forked[0]}/stat").exists() and ") Z " not in Path(f"/proc/{forked[0]}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def network_namespace() -> Iterator[int]:
    """A process in a network namespace of its own, with a loopback interface."""
    command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "up\n":
            process.kill()
            pytest.skip("this user may not make a network namespace")
        try:
            yield process.pid
        finally:
            process.kill()


def serve_within(pid: int, port: int) -> RasServer:
    """A service in the network namespace of a process; threads have namespaces of their own."""
    made: list[RasServer] = []

    def enter() -> None:
        with Path(f"/proc/{pid}/ns/net").open() as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0) == 0
        made.append(RasServer(lambda: STATUS, port=port))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return made[0]


def test_a_job_is_asked_in_its_own_network_namespace() -> None:
    with network_namespace() as pid, serve_within(pid, 28028) as server:
        here = Path("/proc/self/ns/net").stat().st_ino
        machine = MachineAccess()
        machine.gpu_pids = {pid: False}
        answered = json.loads(json.dumps(read_source("nccl_ras", read_nccl_ras, machine, {})))
        assert answered["state"] == "present", answered
        assert len(answered["sample"][2]) == 1, answered
        assert server.commands
        assert Path("/proc/self/ns/net").stat().st_ino == here
        machine.gpu_pids = {os.getpid(): False}
        assert read_nccl_ras(machine, {"address": ("127.0.0.1:28028",)}).jobs == (), "it does not listen here"


def test_a_namespace_that_may_not_be_entered_is_a_failing_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(nccl_ras, "enter_network_namespace", refuse)
    machine = MachineAccess()
    machine.gpu_pids = {os.getpid(): False}
    failing = read_source("nccl_ras", read_nccl_ras, machine, {})
    assert failing["state"] == "failing"
    assert "CAP_SYS_ADMIN" in failing["reason"]

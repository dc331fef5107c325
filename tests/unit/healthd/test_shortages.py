"""What healthd does while this process has no descriptor left: nothing ends, nothing is mistaken for a fault of others."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.checks import process_start_checks
from healthd.collectors.beacons import BeaconCollector
from healthd.config import Config
from healthd.host import Host
from healthd.orders.order_executor import OrderExecutor
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import make_order_update
from healthd.orders.program_order import ProgramTask, judge_reset
from healthd.samples.start_failure import StartFailure
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.supervision.child_supervisor import PAUSE_S_MIN, ChildSupervisor
from healthd.supervision.systemd_notifier import ServiceManager
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from vocabulary.clock import ManualClock
from vocabulary.finding import Severity
from vocabulary.order import Order, OrderKind, OrderState

NOW = 1_700_000_000.0


@contextlib.contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open `count` more descriptors, and then gets EMFILE."""
    free = [os.open(os.devnull, os.O_RDONLY) for _ in range(count + 1)]
    for descriptor in free:
        os.close(descriptor)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def make_order(kind: OrderKind) -> Order:
    return Order(
        kind=kind, incident="i", reason="r", id="o1", node="n1", issued_at=NOW, expires_at=NOW + 60, job="j", gpu="g"
    )


@pytest.mark.parametrize("left", range(8))  # a start takes nine: wherever the shortage strikes, nothing may stay open
def test_a_start_without_descriptors_is_postponed_and_leaves_none_open(left: int) -> None:
    clock = ManualClock()
    host = Host(clock=clock)
    supervisor = ChildSupervisor(host, "healthd.source_child", lambda: ["/", "{}"])
    before = open_descriptors()
    with descriptors_left(left):
        assert [supervisor.start_if_due() for _ in range(3)] == [False] * 3
        assert not supervisor.alive
    assert open_descriptors() == before
    failure = host.start_failures.current["healthd.source_child"]
    assert failure.limit is not None
    assert "Too many open files" in failure.reason
    assert not supervisor.start_if_due(), "it is too early"
    clock.advance(PAUSE_S_MIN)
    assert supervisor.start_if_due()
    assert not host.start_failures.current
    supervisor.close()
    assert open_descriptors() == before


def test_starts_that_fail_again_and_again_are_tried_ever_more_rarely() -> None:
    clock = ManualClock()
    supervisor = ChildSupervisor(Host(clock=clock), "healthd.source_child", lambda: ["/", "{}"])
    tried_at: list[float] = []
    supervisor._arguments = lambda: tried_at.append(clock.monotonic()) or ["/", "{}"]  # type: ignore[func-returns-value]  # to note the time
    with descriptors_left(3):
        for _ in range(20):
            supervisor.start_if_due()
            clock.advance(PAUSE_S_MIN)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried_at)]
    assert pauses == [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("errno", "limit", "words"),
    [
        (24, 1024, "(1024): raise LimitNOFILE="),
        (23, None, "fs.file-max"),
        (11, 512, "(512): raise TasksMax="),
        (12, None, "MemoryMax="),
        (2, None, "installed"),
    ],
)
def test_the_finding_names_the_limit_and_how_to_raise_it(errno: int, limit: int | None, words: str) -> None:
    (fact,) = process_start_checks.judge_start_failures(
        [StartFailure("healthd.nvml.child", errno, os.strerror(errno), limit)], NOW
    )
    assert fact.severity is Severity.WARNING  # type: ignore[union-attr]  # it is there, and of that kind
    assert fact.summary.startswith(f"healthd cannot start healthd.nvml.child: {os.strerror(errno)}. ")  # type: ignore[union-attr]  # it is there, and of that kind
    assert words in fact.summary  # type: ignore[union-attr]  # it is there, and of that kind


def test_an_order_waits_for_descriptors_and_then_runs() -> None:
    clock = ManualClock()
    host = Host(clock=clock)
    order = make_order(OrderKind.RESET_GPU)
    task = ProgramTask(
        order, make_order_update(order, OrderState.RECEIVED, NOW, ""), [sys.executable, "-c", ""], host, judge_reset
    )
    before = open_descriptors()
    with descriptors_left(2):
        assert task.step(NOW) is None
        assert task.step(NOW + 2) is None
    assert open_descriptors() == before
    assert "the program of order reset_gpu" in host.start_failures.current
    started = task.step(NOW + 4)
    assert started is not None
    assert started.state is OrderState.RUNNING  # type: ignore[union-attr]  # it is there, and of that kind
    assert not host.start_failures.current
    task.close()


def test_an_order_that_never_got_descriptors_expires_with_the_reason() -> None:
    host = Host(clock=ManualClock())
    order = make_order(OrderKind.RESET_GPU)
    task = ProgramTask(order, make_order_update(order, OrderState.RECEIVED, NOW, ""), ["true"], host, judge_reset)
    with descriptors_left(0):
        assert task.step(NOW) is None
        end = task.step(NOW + 60)
    assert end is not None
    assert end.state is OrderState.EXPIRED  # type: ignore[union-attr]  # it is there, and of that kind
    assert "Too many open files" in end.detail  # type: ignore[union-attr]  # it is there, and of that kind
    assert not host.start_failures.current, "nobody waits for it any more"


@pytest.mark.parametrize("left", [0, 1])  # none for the directory; one for the page, and none for /proc
def test_ranks_are_not_dead_because_they_cannot_be_read(tmp_path: Path, left: int) -> None:
    beacon = Beacon.create(str(tmp_path), RankPlacement("j", 1, 0, 2, 0, "n1"))
    collector = BeaconCollector(tmp_path)
    (rank,) = collector.read(NOW).ranks
    assert rank.alive
    with descriptors_left(left):
        sample = collector.read(NOW + 1)
    assert [(each.rank, each.alive) for each in sample.ranks] == [(0, True)]
    assert all("cannot be read now: Too many open files" in problem for problem in sample.broken.values())
    assert sample.broken
    beacon.close()
    again = collector.read(NOW + 2)
    assert not again.broken
    assert [each.alive for each in again.ranks] == [True]


def test_a_rank_is_ordered_once_its_page_can_be_opened(tmp_path: Path) -> None:
    beacons = tmp_path / "beacons"
    beacons.mkdir(mode=0o700)
    beacon = Beacon.create(str(beacons), RankPlacement("j", 1, 0, 2, 0, "n1"))
    clock = ManualClock(NOW)
    database = NodeDatabase(tmp_path / "db", NOW)
    orders = OrderStore(DatabaseWriter(database, clock), "n1")
    orders.receive(make_order(OrderKind.CHECKPOINT_THEN_EJECT), NOW)
    performer = OrderExecutor(
        Config(node="n1", beacon_dir=beacons),
        Host(clock=clock),
        orders,
        on_proof=lambda _: None,
        on_answer=lambda: None,
        rest_nvml=lambda _: True,
        evidence=lambda _: pytest.fail("none was ordered"),
    )
    for left in (0, 1, 2):
        with descriptors_left(left):
            performer.tick()
    performer.tick()
    (answer,) = [answer for _, answer in orders.open()]
    assert (answer.state, answer.detail) == (OrderState.RUNNING, "in the mailboxes")
    beacon.close()
    database.close()


def test_systemd_hears_that_we_live_also_without_a_descriptor_to_spare(tmp_path: Path) -> None:
    import socket  # noqa: PLC0415 - for this test alone

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        manager = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1"})
        with descriptors_left(0):
            manager.alive("healthy")
        assert systemd.recv(100) == b"STATUS=healthy\nWATCHDOG=1"
        manager.stopping()

"""What becomes of orders when the disk does not take their answers: the real performer, database and committer's thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.config import Config, OrdersConfig
from healthd.host import Host
from healthd.orders.order_executor import DATABASE_PAUSE_S, OrderExecutor
from healthd.orders.order_store import OrderStore
from healthd.storage.database_writer import OVERDUE_S, DatabaseWriter
from healthd.storage.node_database import DatabaseFull, NodeDatabase
from vocabulary.clock import ManualClock
from vocabulary.order import Order, OrderKind, OrderState

NOW = 1_700_000_000.0
LONG_S = 60.0
NO_PROGRAM = "/nowhere/program"  # starting it is seen at once: the order fails


class Node:
    """A performer whose orders need programs that do not exist, and a disk that the test makes hang or fail."""

    def __init__(self, directory: Path) -> None:
        boot = directory / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True)
        boot.write_text("first\n")
        self.clock = ManualClock(NOW)
        self.database = NodeDatabase(directory / "healthd.db", NOW)
        self.committer = DatabaseWriter(self.database, self.clock)
        self.orders = OrderStore(self.committer, "n1")
        self.late = threading.Semaphore(0)
        commands = OrdersConfig(reboot_command=(NO_PROGRAM,), preflight_command=(NO_PROGRAM,))
        self.performer = OrderExecutor(
            Config(node="n1", beacon_dir=directory, orders=commands),
            Host(clock=self.clock, proc=directory / "proc"),
            self.orders,
            on_proof=lambda _: None,
            on_answer=lambda: None,
            rest_nvml=lambda _: True,
            evidence=lambda _: pytest.fail("none was ordered"),
        )
        self.orders.on_late = self._on_late
        self._free = threading.Event()
        self.committer.start()

    def _on_late(self) -> None:
        self.performer.wake()
        self.late.release()

    def receive(self, kind: OrderKind) -> None:
        order = Order(id="o1", kind=kind, node="n1", incident="i", reason="r", issued_at=NOW, expires_at=NOW + 60)
        assert self.orders.receive(order, NOW)
        self.performer.wake()

    def hold(self) -> None:
        """The disk hangs, and has done so for long enough that nobody waits for it."""
        self.committer.submit(lambda _: self._free.wait(LONG_S))
        self.clock.advance(OVERDUE_S + 1)

    def release(self) -> None:
        self._free.set()
        self.sync()

    def sync(self) -> None:
        """Return once everything handed over so far has been written or has failed."""
        self.committer.submit(lambda _: None).result(LONG_S)

    def writable(self, *, on: bool) -> None:
        self.database.connection.execute(f"pragma query_only = {'off' if on else 'on'}")

    def tick(self) -> None:
        """As `Performer.run` does it."""
        with contextlib.suppress(DatabaseFull):
            self.performer.tick()
        self.performer.wake()
        self.sync()
        self.clock.advance(DATABASE_PAUSE_S)

    @property
    def stored(self) -> list[str]:
        """The states of the orders, on the disk."""
        return [state for (state,) in self.database.rows("select state from orders")]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.release()
    assert node.committer.close(LONG_S)


@pytest.mark.parametrize("hangs_first", [True, False])
def test_a_reboot_does_not_begin_before_the_disk_has_its_answer(node: Node, *, hangs_first: bool) -> None:
    node.receive(OrderKind.REBOOT)
    if hangs_first:
        node.hold()
        node.performer.tick()
        node.writable(on=False)
        node.release()
        assert node.late.acquire(timeout=LONG_S), "the performer looks again"
    else:
        node.writable(on=False)
    for _ in range(4):
        node.tick()
        assert [answer.state for _, answer in node.orders.open()] == [OrderState.RUNNING], "nothing was started"
        assert node.orders.waits_for_disk("o1")
    assert node.stored == ["received"], "after a boot it would begin again"
    node.writable(on=True)
    node.tick()
    assert node.stored == ["running"]
    assert not node.orders.waits_for_disk("o1")
    node.tick()
    assert node.stored == ["failed"], "it went on, once its answer was durable"


def test_the_end_of_an_order_is_stored_once_the_disk_takes_it_and_the_order_is_not_performed_again(node: Node) -> None:
    node.receive(OrderKind.RUN_PREFLIGHT)
    node.writable(on=False)
    with pytest.raises(DatabaseFull):
        node.performer.tick()
    for _ in range(3):
        node.tick()
    assert node.orders.open() == [], "it has ended"
    assert node.orders.unsent(0)[0].state is OrderState.RECEIVED, "nobody hears of what is not durable"
    node.writable(on=True)
    node.tick()
    assert node.stored == ["failed"]
    (answer,) = node.orders.unsent(0)
    assert (answer.state, NO_PROGRAM in answer.detail, answer.at) == (OrderState.FAILED, True, NOW)


def test_the_performer_itself_stores_an_answer_that_failed(node: Node) -> None:
    """With no order left to look after, its thread must not sleep until the next order comes."""
    node.receive(OrderKind.RUN_PREFLIGHT)
    node.writable(on=False)
    thread = threading.Thread(target=node.performer.run)
    thread.start()
    try:
        assert node.late.acquire(timeout=LONG_S), "stored a second time, and failed again"
        node.writable(on=True)
        while node.stored != ["failed"]:
            node.clock.advance(DATABASE_PAUSE_S)
            assert node.late.acquire(timeout=LONG_S)
    finally:
        node.performer.stop()
        thread.join(LONG_S)
    assert not thread.is_alive()

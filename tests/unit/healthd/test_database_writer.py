"""What waits for the disk and what does not: a writer that is held up for as long as the test wants."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

from healthd.finding_recorder import HUNG_S, PROVE_WRITABLE_S, REPEATS_WAIT_S
from healthd.orders.order_task import HealthVerification, make_order_update
from healthd.samples.kernel_record import Cursor
from healthd.storage.database_writer import OVERDUE_S, CommitOverdue, LastCommit
from healthd.storage.node_database import DatabaseFull, NodeDatabase
from tests.unit.healthd.recording_node import LONG_S, NOW, Node, finding
from vocabulary.finding import Severity
from vocabulary.order import Order, OrderKind, OrderState


def order(kind: OrderKind, name: str = "o1") -> Order:
    return Order(id=name, kind=kind, node="n1", incident="i", reason="r", issued_at=NOW, expires_at=NOW + 60, job="j")


def test_a_finding_is_shown_once_it_is_durable_and_what_comes_meanwhile_goes_together(node: Node) -> None:
    node.hold()
    node.fault("79")
    node.recorder.read_up_to(Cursor("boot", 1))
    assert not node.commit_if_due()
    node.fault("48")
    node.fault("31", Severity.WARNING)
    node.recorder.read_up_to(Cursor("boot", 3))
    assert not node.commit_if_due()
    assert node.shown == []
    node.let_go()
    assert node.woken.acquire(timeout=LONG_S), "the main loop is woken at its end"
    assert node.database.cursor() == Cursor("boot", 1), "the cursor moves with what was read up to it, and no further"
    assert node.commit_if_due()
    node.settle_all()
    assert node.shown == ["xid/79", "xid/48", "xid/31"]
    assert node.database.cursor() == Cursor("boot", 3)
    assert [change.seq for change in node.waiting.changes(9, node.recorder.newest)] == sorted(
        change.seq for change in node.database.changes(9)
    )


def test_a_report_holds_no_change_that_its_findings_do_not_know(node: Node) -> None:
    node.hold()
    node.fault("79")
    node.commit_if_due()
    before = node.recorder.newest
    node.let_go()
    assert node.waiting.count() == 1, "it is durable"
    assert node.waiting.changes(9, before) == (), "and the main loop has not yet shown it"
    node.commit_if_due()
    assert [change.finding.code for change in node.waiting.changes(9, node.recorder.newest)] == ["79"]


def test_that_a_test_passed_is_not_told_before_what_it_cleared(node: Node) -> None:
    node.orders.receive(order(OrderKind.RUN_PREFLIGHT), NOW)
    node.fault("79")
    node.settle_all()
    node.hold()
    passed = make_order_update(order(OrderKind.RUN_PREFLIGHT), OrderState.SUCCEEDED, NOW + 1, "passed")
    node.recorder.prove(HealthVerification(passed, by="preflight o1", whole_node=True))
    node.commit_if_due()
    node.let_go()
    assert node.orders.unsent(node.recorder.newest) == [], "it is durable, and others are still shown the finding"
    assert node.commit_if_due()
    assert node.shown == []
    assert node.orders.unsent(node.recorder.newest) == [passed]


def test_a_disk_that_hangs_is_a_finding_and_then_memory_is_shown(node: Node) -> None:
    node.hold()
    node.fault("79")
    node.commit_if_due()
    assert not node.commit_if_due(OVERDUE_S - 0.1)
    assert node.shown == []
    assert node.commit_if_due(0.2), "others should hear of it"
    assert node.shown == ["xid/79", "outbox/overdue"]
    assert len(node.recorder.unwritten) == 2
    assert not node.commit_if_due(1.0), "once"
    node.fault("48")
    assert node.commit_if_due()
    assert node.shown == ["xid/79", "outbox/overdue", "xid/48"]
    node.settle_all()
    assert node.shown == ["xid/79", "xid/48"]
    assert node.recorder.unwritten == frozenset()
    assert {f.kind for f in node.database.active()} == {"xid/79", "xid/48"}
    (told,) = [c.finding for c in node.database.changes(9) if c.finding.kind == "outbox/overdue"]
    assert not told.active, "what happened stays in the history"


def test_a_disk_that_hangs_for_long_is_a_fault_of_the_node(node: Node) -> None:
    node.hold()
    node.fault("79")
    node.commit_if_due()
    node.commit_if_due(HUNG_S - 1)
    assert node.shown == ["xid/79", "outbox/overdue"]
    assert node.commit_if_due(1.0)
    assert node.shown == ["xid/79", "outbox/overdue", "outbox/hung"]
    node.settle_all()
    assert node.shown == ["xid/79"]


def test_an_idle_disk_is_tried_now_and_then(node: Node) -> None:
    node.hold()
    node.commit_if_due(PROVE_WRITABLE_S)
    node.commit_if_due(OVERDUE_S)
    assert node.shown == ["outbox/overdue"]
    node.settle_all()
    assert node.shown == []


def test_a_write_that_failed_is_written_with_what_came_after_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise DatabaseFull("no room")

    monkeypatch.setattr(node.database, "commit", full)
    node.fault("79")
    node.recorder.prove(
        HealthVerification(
            make_order_update(order(OrderKind.RESET_GPU), OrderState.SUCCEEDED, NOW, ""), by="x", gpu="GPU-9"
        )
    )
    written = threading.Event()
    node.recorder.when_written(written.set)
    node.commit_if_due()
    node.committer.submit(lambda _: None).result(LONG_S)
    node.commit_if_due()
    monkeypatch.undo()
    node.fault("48")
    assert set(node.shown) == {"xid/79", "xid/48", "outbox/unwritable"}
    assert not written.is_set()
    node.commit_if_due(1.0)
    node.settle_all()
    node.commit_if_due(REPEATS_WAIT_S)
    node.settle_all()
    assert written.is_set()
    assert {f.kind: f.count for f in node.database.active()} == {"xid/79": 1, "xid/48": 1}


def test_what_was_shown_from_memory_stays_shown_while_it_is_written(node: Node) -> None:
    node.hold()
    node.fault("48")
    node.commit_if_due()
    node.commit_if_due(OVERDUE_S + 1)
    node.fault("79")
    assert node.commit_if_due()
    node.hold_next_write()
    assert node.commit_if_due(), "the first write has ended, and the second is under way"
    assert node.shown == ["xid/48", "xid/79"], "a report without it would clear it"
    unwritten = {finding.id for finding in node.recorder.shown() if finding.id in node.recorder.unwritten}
    assert len(unwritten) == 1
    node.settle_all()
    assert node.recorder.unwritten == frozenset()
    node.hold()
    node.fault("31")
    node.commit_if_due()
    assert node.shown == ["xid/48", "xid/79"], "from now on a finding is again shown once it is durable"


def test_what_was_shown_while_the_disk_failed_stays_shown_while_it_is_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise DatabaseFull("no room")

    monkeypatch.setattr(node.database, "commit", full)
    node.fault("48")
    node.commit_if_due()
    node.committer.submit(lambda _: None).result(LONG_S)
    node.commit_if_due()
    assert set(node.shown) == {"xid/48", "outbox/unwritable"}
    node.hold()
    assert not node.commit_if_due(1.0), "it is tried once more, and that takes long"
    node.fault("79")
    assert set(node.shown) == {"xid/48", "outbox/unwritable", "xid/79"}
    monkeypatch.undo()
    node.hold_next_write()
    assert node.commit_if_due()
    assert set(node.shown) == {"xid/48", "xid/79"}


def test_many_threads_hand_over_and_each_write_is_whole(node: Node) -> None:
    def work(base: int) -> None:
        for number in range(50):
            node.committer.submit(lambda database, number=base + number: database.commit([finding(number)]))

    threads = [threading.Thread(target=work, args=(base,)) for base in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node.let_go()
    assert node.database.waiting() == 150
    assert node.committer.waited_s(node.clock.monotonic() + LONG_S) == 0.0


def once_it_hangs(call: Callable[[], object], node: Node) -> object:
    """What `call` answers or raises, now that the oldest write is overdue."""
    node.clock.advance(OVERDUE_S + 1)
    try:
        return call()
    except DatabaseFull as error:
        return error


def test_a_program_waits_for_the_disk_and_a_trainers_order_does_not(node: Node) -> None:
    late = threading.Semaphore(0)
    node.orders.on_late = late.release
    node.hold()
    refused = once_it_hangs(lambda: node.orders.receive(order(OrderKind.REBOOT, "reboot"), NOW), node)
    assert isinstance(refused, CommitOverdue)
    assert once_it_hangs(lambda: node.orders.receive(order(OrderKind.ABORT, "abort"), NOW), node) is True
    assert [each.id for each, _ in node.orders.open()] == ["abort"]
    assert node.orders.unsent(node.recorder.newest) == [], "nobody hears of what is not durable"
    done = make_order_update(order(OrderKind.ABORT, "abort"), OrderState.SUCCEEDED, NOW + 1, "left")
    node.orders.answer(done)
    assert node.orders.open() == [], "it is not done a second time"
    node.let_go()
    assert [each.id for each, _ in node.orders.open()] == ["reboot"]
    assert late.acquire(timeout=LONG_S), "whoever performs orders looks again"
    assert done in node.orders.unsent(node.recorder.newest)


def test_an_order_whose_answer_is_late_does_not_go_on(node: Node) -> None:
    assert node.orders.receive(order(OrderKind.REBOOT), NOW)
    node.hold()
    running = make_order_update(order(OrderKind.REBOOT), OrderState.RUNNING, NOW + 1, "shutdown")
    once_it_hangs(lambda: node.orders.answer(running), node)
    assert node.orders.waits_for_disk("o1"), "a machine that went down now would go down again after it"
    node.let_go()
    assert not node.orders.waits_for_disk("o1")
    assert node.orders.open() == [(order(OrderKind.REBOOT), running)]


def test_the_end_waits_for_a_slow_disk_and_not_for_one_that_hangs(tmp_path: Path) -> None:
    node = Node(tmp_path / "healthd.db")
    node.hold()
    node.fault("79")
    node.commit_if_due()
    assert not node.recorder.finish(NOW, node.clock.monotonic(), 0.01)
    node.let_go()
    assert node.recorder.finish(NOW, node.clock.monotonic(), LONG_S)
    assert {f.kind for f in node.database.active()} == {"xid/79"}
    node.hold()
    assert not node.committer.close(0.01)
    node.release()
    assert node.committer.close(LONG_S)
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        node.database.connection.execute("select 1")


class Impatient(Future[None]):
    """Does not wait, and remembers for how long it was to."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float | None] = []

    def result(self, timeout: float | None = None) -> None:
        self.waits.append(timeout)
        return super().result(0)


def test_nobody_waits_longer_than_until_the_oldest_write_is_overdue(node: Node) -> None:
    node.hold()
    node.clock.advance(OVERDUE_S - 0.5)
    future = Impatient()
    for _ in range(2):
        with pytest.raises(CommitOverdue):
            node.committer.wait(future)
        node.clock.advance(1.0)
    assert future.waits == [0.5, 0.0]


def test_the_last_commit_is_the_last_that_reached_the_disk(node: Node) -> None:
    def write_slowly(_: NodeDatabase) -> None:
        node.clock.advance(3.0)

    def fail(_: NodeDatabase) -> None:
        raise DatabaseFull("no")

    node.committer.submit(write_slowly).result(LONG_S)
    last = LastCommit(node.clock.wall(), 3.0)
    assert isinstance(node.committer.submit(fail).exception(LONG_S), DatabaseFull)
    node.clock.advance(60.0)
    assert node.committer.last == last

"""The node's database in a real file: what is durable, what is bounded, and what happens when the disk or the file fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from healthd.finding_recorder import CURSOR_WAIT_S, REPEATS_WAIT_S, FindingRecorder
from healthd.findings.facts import Raise
from healthd.findings.finding_ledger import FindingLedger
from healthd.orders.order_store import ENDED_KEPT, OrderStore
from healthd.orders.order_task import HealthVerification, make_order_update
from healthd.samples.kernel_record import Cursor
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import (
    CHANGES_MAX,
    FINDINGS_KEPT,
    PRUNE_EVERY_COMMITS,
    DatabaseCorrupt,
    DatabaseFull,
    NodeDatabase,
)
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu
from vocabulary.order import Order, OrderKind, OrderState

NOW = 1_700_000_000.0


def finding(number: int, *, active: bool = True, count: int = 1) -> Finding:
    return Finding(
        id=f"f{number}",
        node="n1",
        check="xid",
        code="79",
        component=Component(ComponentKind.GPU, pci=f"{number:04x}:00:00.0"),
        severity=Severity.FATAL,
        summary="a fault",
        first_seen=NOW + number,
        last_seen=NOW + number,
        origin=f"b:{number}",
        active=active,
        count=count,
    )


def order(kind: OrderKind = OrderKind.RUN_PREFLIGHT, **more: object) -> Order:
    base: dict[str, object] = {"id": "o1", "node": "n1", "issued_at": NOW, "expires_at": NOW + 60}
    return Order(kind=kind, incident="i", reason="r", **(base | more))  # type: ignore[arg-type]  # by name


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "healthd.db"


@pytest.fixture
def database(path: Path) -> Iterator[NodeDatabase]:
    database = NodeDatabase(path, NOW)
    yield database
    database.close()


def fill_the_disk(database: NodeDatabase) -> None:
    """From now on SQLite says that the disk is full, as it does when it is."""
    (pages,) = database.connection.execute("pragma page_count").fetchone()
    database.connection.execute(f"pragma max_page_count = {pages}")


def free_the_disk(database: NodeDatabase) -> None:
    database.connection.execute("pragma max_page_count = 1000000")


def test_findings_and_cursor_are_there_after_opening_again(path: Path) -> None:
    first = NodeDatabase(path, NOW)
    first.commit([finding(1), finding(2, active=False)], Cursor("boot", 9))
    first.expect_gpus([Gpu(0, "GPU-0", "0000:10:00.0")])
    first.close()
    again = NodeDatabase(path, NOW + 1)
    assert again.active() == [finding(1)]
    assert again.cursor() == Cursor("boot", 9)
    assert [gpu.uuid for gpu in again.gpus()] == ["GPU-0"]
    assert [change.finding.id for change in again.changes(10)] == ["f1", "f2"]
    again.close()


def test_changes_wait_until_acknowledged_and_the_last_word_stands_for_all(database: NodeDatabase) -> None:
    database.commit([finding(1), finding(2)])
    first = database.changes(10)
    database.commit([finding(1, count=2)])
    database.acknowledge(first[-1].seq)
    (change,) = database.changes(10)
    assert change.finding.count == 2, "the newer word on a finding outlives the older one's acknowledgement"
    assert change.seq > first[-1].seq
    database.acknowledge(change.seq)
    assert database.waiting() == 0
    database.commit([finding(3)])
    assert database.changes(1)[0].seq > change.seq, "a number is never used again"


def test_a_fresh_file_starts_above_every_number_of_the_one_before(tmp_path: Path) -> None:
    old, new = NodeDatabase(tmp_path / "a", NOW), NodeDatabase(tmp_path / "b", NOW + 3600)
    for database in (old, new):
        database.commit([finding(1)])
    assert new.changes(1)[0].seq > old.changes(1)[0].seq
    old.close()
    new.close()


def test_history_is_bounded_but_nothing_unreported_or_active_goes(database: NodeDatabase) -> None:
    database.commit([finding(n, active=False) for n in range(FINDINGS_KEPT + 600)])
    database.acknowledge(database.changes(FINDINGS_KEPT)[-1].seq)
    database.commit([finding(n, active=False, count=2) for n in range(10)])  # the oldest have news again
    database.commit([finding(n) for n in range(90_000, 90_050)])
    for _ in range(3 * PRUNE_EVERY_COMMITS):
        database.commit([])
    ((kept,),) = database.rows("select count(*) from findings")
    assert kept == FINDINGS_KEPT
    assert len(database.active()) == 50
    assert database.waiting() == 660
    ((waiting,),) = database.rows("select count(*) from findings join changes on finding = id")
    assert waiting == 660, "what is not yet reported is kept, however old"


def test_an_endless_outage_drops_cleared_findings_first_and_counts_them(database: NodeDatabase) -> None:
    database.commit([finding(n, active=n >= 40) for n in range(CHANGES_MAX + 30)])
    for _ in range(PRUNE_EVERY_COMMITS):
        database.commit([])
    assert database.waiting() == CHANGES_MAX
    assert database.dropped == 30
    assert database.changes(1)[0].finding.id == "f30"


def test_a_full_disk_stores_nothing_by_halves(database: NodeDatabase) -> None:
    database.commit([finding(1)], Cursor("boot", 1))
    fill_the_disk(database)
    with pytest.raises(DatabaseFull, match="free some space"):
        database.commit([finding(n) for n in range(2, 200)], Cursor("boot", 200))
    assert database.active() == [finding(1)]
    assert database.cursor() == Cursor("boot", 1)
    free_the_disk(database)
    database.commit([finding(2)], Cursor("boot", 2))
    assert database.cursor() == Cursor("boot", 2)


@pytest.mark.parametrize("damage", ["not a database", "torn", "unreadable finding"])
def test_what_cannot_be_read_is_moved_aside(path: Path, damage: str) -> None:
    first = NodeDatabase(path, NOW)
    first.commit([finding(n) for n in range(200)])
    if damage == "unreadable finding":
        first.connection.execute("update findings set body = '{}'")
        with pytest.raises(DatabaseCorrupt):
            first.active()
    first.close()
    if damage == "not a database":
        path.write_bytes(b"no database" * 1000)
    elif damage == "torn":
        content = bytearray(path.read_bytes())
        content[8192:-4096] = b"\xff" * (len(content) - 12288)
        path.write_bytes(content)
    else:
        return
    again = NodeDatabase(path, NOW + 5)
    assert again.active() == []
    assert "moved to" in again.problem
    assert path.with_name("healthd.db.corrupt-1700000005").exists()
    again.close()


def test_an_order_is_kept_once_condemns_at_once_and_ends_once(database: NodeDatabase) -> None:
    orders = OrderStore(DatabaseWriter(database, ManualClock()), "n1")
    condemning = order(condemned=("n1", "n9"))
    assert orders.receive(condemning, NOW)
    assert not orders.receive(condemning, NOW + 1)
    condemned = database.condemned()
    assert condemned is not None
    assert condemned.order == "o1"
    (received,) = orders.unsent(0)
    assert received.state is OrderState.RECEIVED
    orders.mark_sent(received)
    assert orders.unsent(0) == []
    done = make_order_update(condemning, OrderState.SUCCEEDED, NOW + 2, "passed")
    orders.answer(done)
    orders.answer(make_order_update(condemning, OrderState.FAILED, NOW + 3, "too late"))
    orders.mark_sent(received)
    assert orders.unsent(0) == [done], "an older answer marks nothing, a later one changes nothing"
    assert orders.open() == []
    orders.mark_sent(done)
    orders.receive(condemning, NOW + 4)
    assert orders.unsent(0) == [done], "asked again, it answers again"


def test_ended_orders_are_forgotten_in_the_end(database: NodeDatabase) -> None:
    orders = OrderStore(DatabaseWriter(database, ManualClock()), "n1")
    for number in range(ENDED_KEPT + 5):
        each = order(id=f"o{number}")
        orders.receive(each, NOW + number)
        answer = make_order_update(each, OrderState.REFUSED, NOW + number, "no")
        orders.answer(answer)
        orders.mark_sent(answer)
    ((kept,),) = database.rows("select count(*) from orders")
    assert kept == ENDED_KEPT + 1


class Node:
    """A recorder over a real database, and time by hand."""

    def __init__(self, database: NodeDatabase) -> None:
        self.ledger = FindingLedger("n1", "boot", database.active())
        committer = DatabaseWriter(database, ManualClock())
        self.orders = OrderStore(committer, "n1")
        self.recorder = FindingRecorder(self.ledger, committer, PendingChanges(committer), self.orders, NOW)
        self.monotonic = 100.0

    def fault(self, pci: int = 1) -> None:
        component = Component(ComponentKind.GPU, pci=f"{pci:04x}:00:00.0")
        self.ledger.apply(
            [
                Raise(
                    check="xid",
                    code="79",
                    component=component,
                    severity=Severity.FATAL,
                    summary="s",
                    at=NOW,
                    event=True,
                    origin=f"boot:{pci}",
                )
            ]
        )

    def commit_if_due(self, after_s: float = 0.0) -> bool:
        self.monotonic += after_s
        return self.recorder.commit_if_due(NOW, self.monotonic)


def test_news_is_written_at_once_repeats_after_a_moment_idle_lines_after_a_minute(database: NodeDatabase) -> None:
    node = Node(database)
    node.fault()
    node.recorder.read_up_to(Cursor("boot", 5))
    assert node.commit_if_due()
    assert (len(database.active()), database.cursor()) == (1, Cursor("boot", 5))
    node.fault()
    node.recorder.read_up_to(Cursor("boot", 6))
    assert not node.commit_if_due()
    assert database.active()[0].count == 1
    assert database.cursor() == Cursor("boot", 5), "the cursor waits with the repeat it passed"
    assert not node.commit_if_due(REPEATS_WAIT_S), "written, but nobody needs to be told now"
    assert (database.active()[0].count, database.cursor()) == (2, Cursor("boot", 6))
    node.recorder.read_up_to(Cursor("boot", 7))
    node.commit_if_due(CURSOR_WAIT_S / 2)
    assert database.cursor() == Cursor("boot", 6)
    node.commit_if_due(CURSOR_WAIT_S)
    assert database.cursor() == Cursor("boot", 7)


def test_a_full_disk_is_a_finding_that_ends_with_it(database: NodeDatabase) -> None:
    node = Node(database)
    node.commit_if_due()
    fill_the_disk(database)
    for number in range(1, 100):
        node.fault(number)
    node.recorder.read_up_to(Cursor("boot", 99))
    assert node.commit_if_due()
    assert "outbox/unwritable" in {f.kind for f in node.ledger.active}
    assert database.active() == []
    free_the_disk(database)
    assert not node.commit_if_due(0.5), "not at once again"
    assert node.commit_if_due(1.0)
    node.commit_if_due(0.1)
    assert {f.kind for f in database.active()} == {"xid/79"}
    assert database.cursor() == Cursor("boot", 99)


def test_a_file_that_breaks_under_us_is_replaced_and_filled_again(path: Path) -> None:
    database = NodeDatabase(path, NOW)
    node = Node(database)
    node.orders.receive(order(condemned=("n1",)), NOW)
    node.fault()
    node.commit_if_due()
    with path.open("r+b") as file:  # and what SQLite remembers of it
        file.write(b"no database" * 2000)
    database.rows("pragma shrink_memory")
    database.rows("pragma wal_checkpoint(truncate)")
    node.fault(2)
    node.commit_if_due()
    node.commit_if_due()
    assert sorted(f.kind for f in database.active()) == ["outbox/corrupt", "xid/79", "xid/79"]
    assert [each.id for each, _ in node.orders.open()] == ["o1"], "and so are orders"
    assert node.recorder.condemned is not None
    assert database.condemned() == node.recorder.condemned, "what was known is put back"
    database.close()


def test_a_proof_ends_its_order_in_the_write_that_clears_the_node(database: NodeDatabase) -> None:
    node = Node(database)
    node.fault()
    node.orders.receive(order(condemned=("n1",)), NOW)
    node.commit_if_due()
    answer = make_order_update(order(), OrderState.SUCCEEDED, NOW + 1, "passed")
    node.recorder.prove(HealthVerification(answer, by="preflight o1", whole_node=True))
    fill_the_disk(database)
    database.connection.execute("pragma query_only = on")
    assert node.commit_if_due()
    assert node.orders.open(), "not written, so not ended"
    database.connection.execute("pragma query_only = off")
    free_the_disk(database)
    assert node.commit_if_due(2.0)
    node.commit_if_due()
    assert database.active() == []
    assert database.condemned() is None
    assert node.recorder.condemned is None
    assert msgspec.structs.asdict(node.orders.unsent(node.recorder.newest)[0])["state"] is OrderState.SUCCEEDED

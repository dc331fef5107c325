"""A database that is lost is not a fresh one, and a condemned node stays condemned whatever happens to it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from healthd.finding_recorder import FindingRecorder
from healthd.findings.finding_ledger import FindingLedger
from healthd.orders.order_store import OrderStore
from healthd.orders.order_task import HealthVerification, make_order_update
from healthd.storage import node_database
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.history_marker import Condemnation, HistoryMarker, read_history_marker, write_history_marker
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from vocabulary.clock import ManualClock
from vocabulary.order import Order, OrderKind, OrderState

NOW = 1_700_000_000.0
ORDER = Order(
    id="o1", kind=OrderKind.RUN_PREFLIGHT, node="n1", incident="i", reason="r", issued_at=NOW, expires_at=NOW + 60,
    condemned=("n1",),
)  # fmt: skip
CONDEMNED = Condemnation("o1", NOW, "r")


class Node:
    """One life of healthd's memory of this node."""

    def __init__(self, path: Path) -> None:
        self.database = NodeDatabase(path, NOW)
        self.committer = committer = DatabaseWriter(self.database, ManualClock())
        self.orders = OrderStore(committer, "n1")
        self.ledger = FindingLedger("n1", "boot", self.database.active())
        self.recorder = FindingRecorder(self.ledger, committer, PendingChanges(committer), self.orders, NOW)

    def commit_if_due(self) -> None:
        self.recorder.commit_if_due(NOW, 100.0)

    def passes(self) -> None:
        proof = HealthVerification(
            make_order_update(ORDER, OrderState.SUCCEEDED, NOW + 1, "passed"), by="preflight o1", whole_node=True
        )
        self.recorder.prove(proof)
        self.commit_if_due()

    def close(self) -> None:
        self.database.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "healthd.db"


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    for each in path.parent.glob("healthd.db*"):
        each.unlink()


def spoil(path: Path) -> None:
    remove(path)
    path.write_bytes(b"garbage" * 4096)


def break_under(database: NodeDatabase) -> None:
    """Spoil the file, and what SQLite remembers of it."""
    with database.path.open("r+b") as file:
        file.write(b"no database" * 2000)
    database.rows("pragma shrink_memory")
    database.rows("pragma wal_checkpoint(truncate)")


LOSSES = [empty, remove, spoil]


def test_a_fresh_node_is_fresh(path: Path) -> None:
    node = Node(path)
    assert node.database.problem == ""
    node.commit_if_due()
    assert node.ledger.active == ()
    mark = read_history_marker(path.with_name("history.json"))
    assert mark == HistoryMarker(since=NOW)
    assert path.with_name("history.json").stat().st_mode & 0o777 == 0o600
    node.close()


@pytest.mark.parametrize("lose", LOSSES)
def test_a_lost_database_is_corrupt(path: Path, lose: Callable[[Path], None]) -> None:
    Node(path).close()
    lose(path)
    node = Node(path)
    node.commit_if_due()
    assert [finding.kind for finding in node.ledger.active] == ["outbox/corrupt"]
    node.close()


def test_an_empty_database_is_never_ours_even_where_nothing_else_is_known(path: Path) -> None:
    empty(path)
    assert "is empty" in Node(path).database.problem


def test_a_database_that_left_only_its_log_is_missing(path: Path) -> None:
    Path(f"{path}-wal").write_bytes(b"")
    assert "is missing" in Node(path).database.problem


def test_a_loss_is_told_although_healthd_was_killed_before_it_could(path: Path) -> None:
    Node(path).close()
    empty(path)
    Node(path).close()  # it made a fresh database, and died before the finding was in it
    node = Node(path)
    node.commit_if_due()
    assert [finding.kind for finding in node.ledger.active] == ["outbox/corrupt"]
    node.close()
    assert Node(path).database.problem == "", "and then it has been told"


@pytest.mark.parametrize("lose", LOSSES)
def test_a_condemned_node_stays_condemned(path: Path, lose: Callable[[Path], None]) -> None:
    node = Node(path)
    node.orders.receive(ORDER, NOW)
    node.close()
    lose(path)
    node = Node(path)
    assert node.recorder.condemned == CONDEMNED
    node.commit_if_due()
    node.orders.receive(ORDER, NOW)
    node.passes()
    assert node.recorder.condemned is None
    node.close()
    lose(path)
    node = Node(path)
    assert node.recorder.condemned is None, "a passed preflight lifted it for good"
    node.close()


def test_a_condemned_node_of_an_older_healthd_is_marked_at_the_first_start(path: Path) -> None:
    node = Node(path)
    node.orders.receive(ORDER, NOW)
    node.close()
    path.with_name("history.json").unlink()
    Node(path).close()
    remove(path)
    assert Node(path).recorder.condemned == CONDEMNED


def test_a_mark_that_cannot_be_read_still_says_that_there_was_a_history(path: Path) -> None:
    Node(path).close()
    mark = path.with_name("history.json")
    mark.write_bytes(b"\xff")
    Node(path).close()
    assert read_history_marker(mark) == HistoryMarker(since=NOW), "with a sound database it is written anew"
    mark.write_bytes(b"")
    remove(path)
    assert "is missing" in Node(path).database.problem


CRASH = """
import os, sys
from pathlib import Path
from healthd.storage import node_database
sys.path.insert(0, {tests!r})
from test_lost_database import ORDER, NOW, Node
when, what = sys.argv[2:]
node = Node(Path(sys.argv[1]))
if what == "lift":
    node.orders.receive(ORDER, NOW)
    node.commit_if_due()
def die(*_): os._exit(9)
write = node_database.write_history_marker
def written(*values):
    write(*values)
    die()
node_database.write_history_marker = die if when == "before" else written
node.passes() if what == "lift" else node.orders.receive(ORDER, NOW)
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("what", ["condemn", "lift"])
def test_killed_beside_the_mark_both_still_agree(path: Path, when: str, what: str) -> None:
    """The mark is written before the database condemns, and after it has lifted."""
    script = CRASH.format(tests=str(Path(__file__).parent))
    done = subprocess.run([sys.executable, "-c", script, str(path), when, what], check=False)
    assert done.returncode == 9
    node = Node(path)
    assert node.recorder.condemned == (CONDEMNED if (what, when) == ("condemn", "after") else None)
    if what == "lift":
        assert node.orders.open() == [], "the order ended in the write that lifted it"
    else:
        assert node.orders.receive(ORDER, NOW), "it was not kept, so it comes again"
        assert node.recorder.condemned == CONDEMNED
    marked = read_history_marker(path.with_name("history.json"))
    assert marked is not None
    assert marked.condemned == node.recorder.condemned
    node.close()


def test_a_mark_is_replaced_whole_or_not_at_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = path.with_name("history.json")
    write_history_marker(mark, HistoryMarker(1.0, CONDEMNED))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input/output"):
        write_history_marker(mark, HistoryMarker(2.0))
    assert read_history_marker(mark) == HistoryMarker(1.0, CONDEMNED)


def test_a_mark_is_on_the_disk_before_its_name_and_its_name_before_anything_follows(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", fsync)
    write_history_marker(path.with_name("history.json"), HistoryMarker(1.0))
    assert len(synced) == 2
    assert synced[0].startswith(".history.json.")
    assert synced[1] == path.parent.name


def test_an_order_that_cannot_be_marked_is_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(path)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_database, "write_history_marker", fail)
    with pytest.raises(node_database.DatabaseFull, match="No space left"):
        node.orders.receive(ORDER, NOW)
    assert node.orders.open() == []
    monkeypatch.undo()
    assert node.orders.receive(ORDER, NOW)
    assert node.recorder.condemned == CONDEMNED
    node.close()


def test_what_is_held_in_memory_survives_a_disk_that_fails_while_the_database_is_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(path)
    node.orders.receive(ORDER, NOW)
    node.commit_if_due()
    break_under(node.database)
    node.orders.mark_sent(node.orders.unsent(node.recorder.newest)[0])
    assert node.committer.corrupt is not None

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(node_database, "write_history_marker", fail)
    node.commit_if_due()
    other = msgspec.structs.replace(ORDER, id="o2", condemned=())
    running = make_order_update(ORDER, OrderState.RUNNING, NOW, "")
    for call in (
        lambda: node.orders.receive(other, NOW),
        lambda: node.orders.answer(running),
        lambda: node.orders.mark_sent(node.orders.unsent(0)[0]),
    ):
        with contextlib.suppress(node_database.DatabaseFull, node_database.DatabaseCorrupt):
            call()
    assert [order.id for order, _ in node.orders.open()] == ["o1"]
    node.recorder.commit_if_due(NOW + 1, 102.0)
    monkeypatch.undo()
    node.recorder.commit_if_due(NOW + 2, 104.0)
    node.orders.store_failed_answers()
    assert node.orders.open() == [(ORDER, running)]
    assert node.orders.receive(other, NOW), "it was not kept, so it comes again"
    assert len(list(path.parent.glob("healthd.db.corrupt-*[0-9]"))) == 1, "a fresh database is not moved aside"
    node.close()
    node = Node(path)
    assert [order.id for order, _ in node.orders.open()] == ["o1", "o2"]
    assert node.recorder.condemned == CONDEMNED
    assert "outbox/corrupt" in [finding.kind for finding in node.ledger.active]
    node.close()

"""The changes that wait for the centre: held in memory, read as they go, and forgotten once the controller has them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.storage.node_database import CommitResult, NodeDatabase
from healthd.storage.pending_changes import HELD_MAX, PendingChanges
from tests.unit.healthd.recording_node import LONG_S, NOW, Node, finding


def test_what_the_centre_has_leaves_at_once_and_the_disk_forgets_it_later(node: Node) -> None:
    node.fault("79")
    node.settle_all()
    node.hold()
    node.waiting.acknowledge(node.recorder.newest)
    assert (node.waiting.count(), node.waiting.changes(9, node.recorder.newest)) == (0, ())
    node.let_go()
    assert node.database.waiting() == 0


def test_more_than_is_held_comes_as_it_goes_and_nothing_is_missed(tmp_path: Path) -> None:
    node, more = Node(tmp_path / "healthd.db"), threading.Semaphore(0)
    node.waiting.on_more = more.release

    def store(database: NodeDatabase, first: int, count: int) -> None:
        node.waiting.add(database.commit([finding(number) for number in range(first, first + count)]), database)

    whole = HELD_MAX + 700
    node.committer.submit(lambda database: store(database, 0, whole)).result(LONG_S)
    assert node.waiting.count() == whole
    node.committer.submit(lambda database: store(database, 0, 1)).result(
        LONG_S
    )  # the oldest again: it is the newest now
    assert node.waiting.count() == whole
    told: list[str] = []
    while changes := node.waiting.changes(500, node.waiting.newest):
        told += [change.finding.id for change in changes]
        node.waiting.acknowledge(changes[-1].seq)
        node.committer.submit(lambda _: None).result(LONG_S)
    assert told == [f"f{number}" for number in (*range(1, whole), 0)]
    assert more.acquire(timeout=LONG_S)
    assert (node.waiting.count(), node.database.waiting()) == (0, 0)
    node.committer.close(LONG_S)


@pytest.mark.parametrize("settle", [PendingChanges.acknowledge, PendingChanges.set_aside])
def test_what_the_centre_took_or_refused_does_not_come_back_before_the_disk_forgets_it(
    node: Node, settle: Callable[[PendingChanges, int], None]
) -> None:
    node.fault("79")
    node.settle_all()
    node.hold()
    pruned = CommitResult((), 0, pruned=True)  # all that waits is then read again
    node.committer.submit(lambda database: node.waiting.add(pruned, database))
    settle(node.waiting, node.recorder.newest)
    node.waiting.acknowledge(node.recorder.newest - 1)  # an answer that was overtaken takes nothing back
    node.let_go()
    assert (node.waiting.count(), node.waiting.changes(9, node.recorder.newest)) == (0, ())
    assert node.database.waiting() == 0
    assert node.waiting.rejected == (settle is PendingChanges.set_aside)


def test_changes_that_were_given_up_for_lack_of_room_do_not_wait_any_more(node: Node) -> None:
    node.fault("79")
    node.fault("48")
    node.settle_all()
    oldest, newest = node.waiting.changes(9, node.recorder.newest)

    def prune(database: NodeDatabase) -> None:
        database.set_aside(oldest.seq)
        node.waiting.add(CommitResult((), 0, pruned=True), database)

    node.committer.submit(prune).result(LONG_S)
    assert (node.waiting.count(), node.waiting.changes(9, newest.seq)) == (1, (newest,))


def test_the_numbers_of_a_fresh_database_have_nothing_to_do_with_those_before(node: Node, tmp_path: Path) -> None:
    node.fault("79")
    node.settle_all()
    node.waiting.acknowledge(node.recorder.newest)
    fresh = NodeDatabase(tmp_path / "fresh.db", NOW - 3600)  # the clock was set back meanwhile
    (change,) = fresh.commit([finding(1)]).changes
    assert change.seq < node.recorder.newest
    node.committer.submit(lambda _: node.waiting.begin_anew(fresh)).result(LONG_S)
    assert (node.waiting.count(), node.waiting.changes(9, change.seq)) == (1, (change,))
    assert node.waiting.newest == change.seq
    fresh.close()

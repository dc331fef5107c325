from __future__ import annotations

from pathlib import Path

import pytest

from remediator.model.inputs import Tick
from remediator.model.records import AuditEvent, NodeRecord
from remediator.state import Changes
from remediator.store.journal import Journal, StoreError


def changes(node: str) -> Changes:
    return Changes(nodes={node: NodeRecord(node=node)}, audit=[AuditEvent(at=1.0, kind="k", text=node)])


def test_a_batch_is_written_whole_and_read_back(tmp_path: Path) -> None:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    epoch = journal.lead()
    journal.commit([Tick(at=1.0)], changes("n1"), epoch)
    journal.commit([], changes("n2"), epoch)
    assert sorted(journal.load().nodes) == ["n1", "n2"]
    assert [(seq, event.text) for seq, event in journal.events(0, 10)] == [(1, "n1"), (2, "n2")]
    assert [seq for seq, _ in journal.events(1, 10)] == [2]
    journal.close()


def test_a_second_centre_on_the_same_file_is_refused(tmp_path: Path) -> None:
    first, second = Journal(f"sqlite:///{tmp_path}/r.db"), Journal(f"sqlite:///{tmp_path}/r.db")
    first.lead()
    with pytest.raises(StoreError, match="another remediator holds"):
        second.lead()
    first.close()
    assert second.lead() == 2
    second.close()


def test_a_deposed_leader_cannot_write(tmp_path: Path) -> None:
    first, second = Journal(f"sqlite:///{tmp_path}/r.db"), Journal(f"sqlite:///{tmp_path}/r.db")
    epoch = first.lead()
    first._lock_fd = None  # as if the lock had been lost with its file system
    (tmp_path / "r.db.lock").unlink()
    second.lead()
    with pytest.raises(StoreError, match="another remediator leads"):
        first.commit([], changes("n1"), epoch)
    assert second.load().nodes == {}
    first.close()
    second.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"r\.db"):
        Journal(f"sqlite:///{tmp_path}/r.db")


def test_another_schema_is_refused(tmp_path: Path) -> None:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    with journal.engine.begin() as db:
        db.exec_driver_sql("UPDATE meta SET value = '99' WHERE key = 'schema'")
    journal.close()
    with pytest.raises(StoreError, match="schema is version 99"):
        Journal(f"sqlite:///{tmp_path}/r.db")

"""The journal on both databases: whole batches, one writer, and clear words when it cannot be used."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from remediator.model.journal_records import AuditEvent, NodeRecord
from remediator.model.pipeline_inputs import Tick
from remediator.state.state_changes import StateChanges
from remediator.store import database_metadata
from remediator.store.database import is_permanent_refusal, parse_database_url, unusable_database_error
from remediator.store.database_metadata import begin_write
from remediator.store.journal import Journal, StoreError
from tests.postgresql import Cluster


def changes(node: str) -> StateChanges:
    return StateChanges(nodes={node: NodeRecord(node=node)}, audit=[AuditEvent(at=1.0, kind="k", text=node)])


def test_a_batch_is_written_whole_and_read_back(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    journal.commit([Tick(at=1.0)], changes("n1"), epoch)
    journal.commit([], changes("n2"), epoch)
    assert sorted(journal.load().nodes) == ["n1", "n2"]
    assert [(seq, event.text) for seq, event in journal.events(0, 10)] == [(1, "n1"), (2, "n2")]
    assert [seq for seq, _ in journal.events(1, 10)] == [2]
    journal.close()


def test_a_batch_whose_answer_was_lost_is_written_once(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    for batch in (1, 1, 2):
        journal.commit([Tick(at=float(batch))], changes(f"n{batch}"), epoch, batch)
    assert [item.at for item in journal.inputs()] == [1.0, 2.0]
    assert [event.text for _, event in journal.events(0, 10)] == ["n1", "n2"]
    journal.close()
    epoch = journal.lead()
    journal.commit([Tick(at=3.0)], changes("n3"), epoch, 2)  # the same number in another term is another batch
    assert [item.at for item in journal.inputs()] == [1.0, 2.0, 3.0]
    journal.close()


def test_a_second_centre_on_the_same_database_is_refused(database: str) -> None:
    first, second = Journal(database), Journal(database)
    first.lead()
    with pytest.raises(StoreError, match="another controller holds"):
        second.lead()
    first.close()
    assert second.lead() == 2
    second.close()


def test_a_deposed_leader_cannot_write(database: str) -> None:
    first, second = Journal(database), Journal(database)
    epoch = first.lead()
    first.leadership._stopping.set()  # it does not notice
    first._lock.release()
    second.lead()
    with pytest.raises(StoreError, match="another replica leads"):
        first.commit([], changes("n1"), epoch)
    assert second.load().nodes == {}
    first.close()
    second.close()


def test_a_term_begins_only_after_the_commit_that_is_under_way(database: str) -> None:
    """The row of the epoch is locked from a commit's first statement on."""
    if database.startswith("sqlite"):
        return  # there a commit locks the whole file
    first, second = Journal(database), Journal(database)
    epoch = first.lead()
    first.leadership._stopping.set()
    first._lock.release()
    assert second.leadership.campaign()
    with first.engine.begin() as db:
        begin_write(db, epoch)
        with second.engine.connect() as other:
            other.execute(text("SET lock_timeout = '200ms'"))
            with pytest.raises(Exception, match="lock timeout"):
                other.execute(text("UPDATE meta SET value = '9' WHERE key = 'epoch'"))
    assert second.leadership.begin_term() == epoch + 1
    first.close()
    second.close()


def test_a_row_that_somebody_else_keeps_locked_is_not_waited_for_for_ever(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's forgotten `BEGIN; UPDATE meta …` in a console."""
    if database.startswith("sqlite"):
        return  # there `busy_timeout` bounds the waiting
    monkeypatch.setattr(database_metadata, "LOCKED_S", 1)
    journal = Journal(database)
    epoch = journal.lead()
    with journal.engine.begin() as console:
        console.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        console.execute(text("UPDATE meta SET value = value WHERE key = 'epoch'"))
        with pytest.raises(OperationalError, match="lock timeout") as failed:
            journal.commit([], changes("n1"), epoch)
        assert not is_permanent_refusal(failed.value), "it is tried again"
    journal.commit([], changes("n1"), epoch)
    with journal.engine.connect() as db:
        assert db.execute(text("SHOW statement_timeout")).scalar_one() == "0", (
            "an export or an upgrade may take its time"
        )
    journal.close()


@pytest.mark.parametrize(
    ("options", "idle", "memory"),
    [("", "3s", "4MB"), ("-c work_mem=8MB", "3s", "8MB"), ("-c idle_in_transaction_session_timeout=9s", "9s", "4MB")],
)
def test_options_in_the_url_replace_only_what_they_name(
    postgresql_server: Cluster, options: str, idle: str, memory: str
) -> None:
    journal = Journal(f"{postgresql_server.database()}&options={quote(options)}")
    with journal.engine.connect() as db:
        assert db.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == idle
        assert db.execute(text("SHOW work_mem")).scalar_one() == memory
    journal.close()


def test_text_that_no_column_takes_is_kept_in_the_record(database: str) -> None:
    journal = Journal(database)
    odd = NodeRecord(node="n1", cause="a\0b" + "x" * 10_000)
    journal.commit([], StateChanges(nodes={"n1": odd}), journal.lead())
    assert journal.load().nodes == {"n1": odd}
    with journal.engine.connect() as db:
        assert db.execute(text("SELECT cause FROM nodes")).scalar_one() == "ab" + "x" * 253
    journal.close()


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"r\.db"):
        Journal(f"sqlite:///{tmp_path}/r.db")


def test_a_missing_directory_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=rf"directory {tmp_path}/none does not exist; create it, writable for .*"
    ) as failed:
        Journal(f"sqlite:///{tmp_path}/none/r.db")
    assert "sqlalche" not in str(failed.value)


def test_a_place_that_may_not_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # tests may run as root, who may do all
    error = OperationalError("SELECT", {}, Exception("unable to open database file"))
    words = str(unusable_database_error(parse_database_url(f"sqlite:///{tmp_path}/r.db"), error))
    assert f"{tmp_path} and its files must belong to" in words


def test_whatever_else_the_database_says_is_said_without_a_link(tmp_path: Path) -> None:
    error = OperationalError("SELECT", {}, Exception("the disk is odd\nand more"))
    error.code = "e3q8"
    words = str(unusable_database_error(parse_database_url(f"sqlite:///{tmp_path}/r.db"), error))
    assert "the disk is odd and more" in words
    assert "sqlalche" not in words
    assert "SELECT" not in words


@pytest.mark.parametrize("url", ["mysql://h/d", "no url", "sqlite+aiosqlite:///x"])
def test_another_kind_of_database_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="database"):
        Journal(url)


def test_a_password_is_never_shown() -> None:
    with pytest.raises(StoreError) as failed:
        Journal("postgresql://someone:sesame@127.0.0.1:1/x")
    assert "sesame" not in str(failed.value)
    assert "127.0.0.1" in str(failed.value)

"""A damaged SQLite file: named with its place and what to do, at the start and in the middle of a term, and nothing rests on it."""

from __future__ import annotations

import contextlib
import random
import re
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from remediator.engine.batch_writer import BatchWriter
from remediator.model.journal_records import AuditEvent, NodeRecord
from remediator.model.pipeline_inputs import Tick
from remediator.state.state_changes import StateChanges
from remediator.store.journal import Journal, StoreError
from tests.timelines.timeline import settings

SAID = re.compile(r"database \S+r\.db is damaged \(.+\); .*docs/how-to/damaged-database\.md")
PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with some history, all of it in the one file."""
    file = tmp_path / "r.db"
    journal = Journal(f"sqlite:///{file}")
    epoch = journal.lead()
    for number in range(20):
        events = [AuditEvent(at=1.0, kind="k", text="x" * 1000) for _ in range(10)]
        journal.commit([Tick(at=1.0)], StateChanges(nodes={"n1": NodeRecord("n1")}, audit=events), epoch, number)
    journal.close()
    return file


def spoil(file: Path, page: int) -> None:
    """Noise over one page."""
    assert file.stat().st_size > page * PAGE
    with file.open("r+b") as database:
        database.seek(page * PAGE)
        database.write(random.Random(1).randbytes(PAGE))  # noqa: S311 - the same noise every time


def page_of(file: Path, table: str) -> int:
    """The first page of a table."""
    connection = sqlite3.connect(file)
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    connection.close()
    return int(root) - 1


def begin_term(file: Path) -> None:
    with contextlib.closing(Journal(f"sqlite:///{file}")) as journal:
        journal.lead()


def test_no_term_begins_on_a_file_of_which_any_page_is_damaged(file: Path) -> None:
    whole = file.read_bytes()
    for page in {0, *range(1, len(whole) // PAGE, 7), page_of(file, "nodes"), page_of(file, "audit")}:
        file.write_bytes(whole)
        spoil(file, page)
        with pytest.raises(StoreError, match=SAID):
            begin_term(file)


def test_a_record_that_is_none_begins_no_term(file: Path) -> None:
    journal = Journal(f"sqlite:///{file}")
    with journal.engine.begin() as db:
        db.execute(text("UPDATE nodes SET body = CAST('{\"node\": ' AS BLOB)"))
    with pytest.raises(StoreError, match=r"is damaged \(a record cannot be read"):
        journal.load()
    journal.close()


def test_damage_that_comes_up_ends_the_term_and_is_not_asked_again(file: Path) -> None:
    journal = Journal(f"sqlite:///{file}")
    told: list[str] = []
    epoch = journal.lead()
    journal.leadership.over = told.append
    batches = BatchWriter(journal, epoch, settings(), threading.Event())
    spoil(file, page_of(file, "audit"))
    journal.engine.dispose()  # what a connection has read already, it does not read again
    batches.state.note(2.0, "k", "one more")
    with pytest.raises(StoreError, match="the database is damaged"):
        batches.write([Tick(at=2.0)])
    assert SAID.fullmatch(told[0])
    journal.close()

"""The audit log on both databases: it refuses to be changed, and shows it when somebody got round that."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import DBAPIError

from remediator.model.journal_records import AuditEvent
from remediator.state.state_changes import StateChanges
from remediator.store import audit_log
from remediator.store.journal import Journal

Harm = Callable[[Connection], object]


@pytest.fixture
def journal(database: str) -> Journal:
    opened = Journal(database)
    epoch = opened.lead()
    for number in range(1, 11):
        line = AuditEvent(at=float(number), kind="k", text=f"event {number}", node="n1")
        opened.commit([], StateChanges(audit=[line, line]), epoch)
    return opened


def checked(journal: Journal) -> audit_log.ChainCheck:
    with journal.engine.connect() as db:
        return audit_log.verify_chain(db)


def unguarded(journal: Journal, harm: str) -> None:
    """What the database's owner can do who takes the triggers off."""
    with journal.engine.begin() as db:
        if db.dialect.name == "postgresql":
            for table in ("audit", "audit_anchors"):
                db.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        else:
            found = db.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
            for name in found:
                db.execute(text(f"DROP TRIGGER {name}"))
        db.execute(text(harm))


def test_an_untouched_log_holds(journal: Journal) -> None:
    found = checked(journal)
    assert (found.events, found.first, found.last, found.cut, found.broken) == (20, 1, 20, 0, "")
    assert list(audit_log.describe_chain_check(found)) == ["20 events are intact, 1 to 20", f"head 20:{found.head}"]
    journal.close()


def test_a_log_that_grows_and_is_cut_meanwhile_is_read_as_of_one_moment(journal: Journal, database: str) -> None:
    """A controller writes between any two questions of the walk."""
    other = Journal(database)
    written: list[int] = []

    def between(*_: object) -> None:
        number = len(written)
        written.append(number)
        with other.engine.begin() as db:
            audit_log.append_audit_events(db, [AuditEvent(at=100.0, kind="k", text=f"meanwhile {number}")], 1)
            audit_log.cut_audit_log(db, before=float(number), at=101.0, epoch=1, limit=1)

    with journal.engine.connect() as db:
        event.listen(db, "after_cursor_execute", between)
        found = audit_log.verify_chain(db)
    assert len(written) > 2
    assert found.broken == ""
    assert found.last <= 22
    for each in (journal, other):
        each.close()


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE audit SET node = 'n2' WHERE seq = 3",
        "DELETE FROM audit WHERE seq = 20",
        "DELETE FROM audit",
        "INSERT INTO audit (seq, epoch, at, node, incident, body) VALUES (3, 1, 1, 'n', 'i', '{}')",
    ],
)
def test_the_database_refuses_changes(journal: Journal, harm: str) -> None:
    with pytest.raises(DBAPIError), journal.engine.begin() as db:
        db.execute(text(harm))
    assert checked(journal).broken == ""
    journal.close()


def test_replacing_and_emptying_are_refused_too(journal: Journal) -> None:
    lite = journal.engine.dialect.name == "sqlite"
    harm = "REPLACE INTO audit SELECT * FROM audit WHERE seq = 3" if lite else "TRUNCATE audit"
    with pytest.raises(DBAPIError, match="only ever added"), journal.engine.begin() as db:
        db.execute(text(harm))
    journal.close()


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        ("UPDATE audit SET epoch = 9 WHERE seq = 7", "event 7 differs from what was written"),
        (
            "UPDATE audit SET body = (SELECT body FROM audit WHERE seq = 1) WHERE seq = 7",
            "event 7 differs from what was",
        ),
        ("UPDATE audit SET actor = 'ann' WHERE seq = 7", "event 7: its column actor"),
        ("DELETE FROM audit WHERE seq BETWEEN 5 AND 6", "event 7 differs from what was written, or events 5 to 6"),
        ("DELETE FROM audit WHERE seq = 1", "event 2 differs from what was written, or events 1 to 1"),
        ("DELETE FROM audit WHERE seq > 18", "the log ends at event 18, but the last one written was 20"),
        ("UPDATE audit SET seq = 21 WHERE seq = 20", "event 21 differs from what was written"),
        (
            "INSERT INTO audit_anchors SELECT seq, hash, seq, 1, 1, 1 FROM audit WHERE seq = 4",
            "event 1 lies in a range that an anchor marks as removed",
        ),
    ],
)
def test_whoever_gets_round_that_is_found_out(journal: Journal, harm: str, words: str) -> None:
    unguarded(journal, harm)
    assert words in checked(journal).broken
    journal.close()


def test_a_forged_anchor_has_no_event_that_speaks_of_it(journal: Journal) -> None:
    with journal.engine.begin() as db:
        db.execute(text("INSERT INTO audit_anchors SELECT seq, hash, seq, 1, 1, 1 FROM audit WHERE seq = 4"))
        db.execute(text("DELETE FROM audit WHERE seq <= 4"))
    assert "no event in the log records the removal" in checked(journal).broken
    journal.close()


def test_a_beginning_is_cut_and_its_anchor_stands_for_it(journal: Journal) -> None:
    epoch = 1
    with journal.engine.begin() as db:
        assert audit_log.cut_audit_log(db, 6.0, 100.0, epoch, limit=4) == 4
        assert audit_log.cut_audit_log(db, 6.0, 100.0, epoch, limit=100) == 6, (
            "up to the first that is young enough to stay"
        )
        assert audit_log.cut_audit_log(db, 6.0, 100.0, epoch, limit=100) == 0
    found = checked(journal)
    assert (found.first, found.last, found.events, found.cut, found.broken) == (11, 22, 12, 10, "")
    texts = [event.kind for _, event in journal.events(0, 100)]
    assert texts == ["k"] * 10 + ["audit_cut"] * 2
    journal.commit([], StateChanges(audit=[AuditEvent(at=101.0, kind="k", text="more")]), epoch)
    assert checked(journal).broken == ""
    with pytest.raises(DBAPIError), journal.engine.begin() as db:
        db.execute(text("DELETE FROM audit_anchors"))
    journal.close()

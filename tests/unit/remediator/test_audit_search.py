"""The audit log asked backwards: what fits comes once, newest first, in portions, against a plain filter of the same lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine

from remediator.model.journal_records import AuditEvent
from remediator.store import audit_log
from remediator.store.audit_search import AuditQuery, AuditSearch
from remediator.store.journal import Journal

EVENTS = [
    AuditEvent(
        at=1000.0 + n,
        kind=("note", "cordon", "hold")[n % 3],
        text=f"line {n}",
        actor=("ann", "bob")[n % 2],
        node=f"n{n % 4}",
        incident=f"inc-{n % 5}" if n % 2 else "",
    )
    for n in range(60)
]
WANTED = st.builds(
    AuditQuery,
    node=st.sampled_from(["", "n0", "n3", "none"]),
    incident=st.sampled_from(["", "inc-1"]),
    kind=st.sampled_from(["", "note", "hold"]),
    actor=st.sampled_from(["", "bob"]),
    before=st.sampled_from([0, 17, 61, 10_000]),
    since=st.sampled_from([0.0, 1010.0]),
    until=st.sampled_from([0.0, 1040.0]),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    journal = Journal(f"sqlite:///{tmp_path_factory.mktemp('log')}/r.db")
    journal.prepare()
    with journal.engine.begin() as db:
        audit_log.append_audit_events(db, EVENTS, 1)
    yield journal.engine
    journal.close()


def fits(seq: int, event: AuditEvent, wanted: AuditQuery) -> bool:
    same = all(getattr(wanted, name) in {"", getattr(event, name)} for name in ("node", "incident", "kind", "actor"))
    soon = (not wanted.before or seq < wanted.before) and (not wanted.until or event.at < wanted.until)
    return same and soon and event.at >= wanted.since


@given(wanted=WANTED, limit=st.integers(1, 20), looked_at=st.integers(1, 30))
def test_portions_are_the_whole_answer_in_pieces(
    engine: Engine, wanted: AuditQuery, limit: int, looked_at: int
) -> None:
    search, found, asked = AuditSearch(engine, looked_at), [], wanted
    for _ in range(len(EVENTS) + 2):
        told = search.find(asked, limit)
        assert len(told.events) <= limit
        found += told.events
        if not told.looked_to:
            break
        assert told.looked_to < (asked.before or 61)  # it comes to an end
        asked = AuditQuery(
            **{name: getattr(wanted, name) for name in AuditQuery.__struct_fields__} | {"before": told.looked_to}
        )
    numbered = list(enumerate(EVENTS, 1))
    assert found == [(seq, event) for seq, event in reversed(numbered) if fits(seq, event, wanted)]


def test_the_head_is_that_of_the_chain(engine: Engine) -> None:
    told = AuditSearch(engine).find(AuditQuery(), 1)
    with engine.connect() as db:
        checked = audit_log.verify_chain(db)
    assert (told.head, told.seal) == (checked.last, checked.head)


def test_an_empty_log_has_nothing(tmp_path: Path) -> None:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    journal.prepare()
    told = AuditSearch(journal.engine).find(AuditQuery(kind="note"), 5)
    assert (told.events, told.looked_to, told.head) == ((), 0, 0)
    journal.close()

"""Sessions as the database keeps them: bounded, for a time, and for the one who leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.model.credentials import Identity, Role
from remediator.store.database import StoreError
from remediator.store.database_metadata import set_metadata
from remediator.store.journal import Journal
from remediator.store.login_sessions import LoginSessions
from tests.unit.remediator.api.in_process_controller import Inside


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(f"sqlite:///{tmp_path}/own.db")
    journal.lead()
    yield journal
    journal.close()


def test_a_session_outlives_the_process_and_not_its_time(shared: Inside) -> None:
    ann = shared.tokens.identify(shared.token["ann"])
    assert ann is not None
    secret = LoginSessions(shared.journal.engine).begin(ann, 1000.0, 60.0, "ann")
    another = LoginSessions(shared.journal.engine)
    assert another.find(secret, 1059.0) is not None
    assert another.find(secret, 1060.0) is None
    assert another.find(secret + "x", 1000.0) is None


def test_a_session_lasts_no_longer_than_its_token(shared: Inside) -> None:
    short = Identity(Role.VIEWER, "short", "0123456789ab", expires_at=1010.0)
    sessions = LoginSessions(shared.journal.engine)
    secret = sessions.begin(short, 1000.0, 3600.0, "short")
    assert sessions.find(secret, 1009.0) is not None
    assert sessions.find(secret, 1011.0) is None


def test_sessions_are_bounded_and_the_oldest_end(journal: Journal) -> None:
    sessions = LoginSessions(journal.engine, most=3)
    now = 4e9
    secrets = [sessions.begin(Identity(Role.VIEWER, f"v{n}", f"{n:012x}"), now + n, 1e6, "many") for n in range(5)]
    for place in (sessions, LoginSessions(journal.engine)):
        assert [place.find(secret, now + 10) is not None for secret in secrets] == [False, False, True, True, True]


def test_of_too_many_sessions_of_a_token_its_own_oldest_ends(journal: Journal) -> None:
    ann, vic = (Identity(Role.VIEWER, name, f"{name:0>12}") for name in ("ann", "vic"))
    sessions = LoginSessions(journal.engine, of_a_token=2)
    now = 5e9
    first = sessions.begin(ann, now, 1e6, "ann")
    others = [sessions.begin(vic, now + n, 1e6, "vic") for n in range(1, 6)]
    for place in (sessions, LoginSessions(journal.engine)):
        assert place.find(first, now + 10) is not None
        assert [place.find(secret, now + 10) is not None for secret in others] == [False, False, False, True, True]


def test_who_leads_no_more_begins_and_ends_nothing(tmp_path: Path) -> None:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    journal.lead()
    before, ann = LoginSessions(journal.engine), Identity(Role.VIEWER, "ann", "0123456789ab")
    secret = before.begin(ann, 1000.0, 60.0, "ann")
    journal.close()
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    journal.lead()
    for late in (lambda: before.begin(ann, 1001.0, 60.0, "ann"), lambda: before.end(secret, "ann", "ann", 1001.0)):
        with pytest.raises(StoreError, match="has ended"):
            late()
    assert LoginSessions(journal.engine).find(secret, 1001.0) is not None
    journal.close()


def test_a_session_that_nobody_can_read_keeps_nobody_from_leading(shared: Inside) -> None:
    with shared.journal.engine.begin() as db:
        set_metadata(db, "session:broken", "{}")
    assert LoginSessions(shared.journal.engine).find("x", 1.0) is None

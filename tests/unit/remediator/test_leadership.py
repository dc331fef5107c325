"""Who leads, on a real PostgreSQL: a lease, a lost session, a term that is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from remediator.store.journal import Journal, LeadTakenError
from remediator.store.leader_lease import LEASE_S
from remediator.store.leadership import Leadership
from tests import postgresql

SESSIONS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'gpu-healthd-leader' AND datname = '{}'"


@pytest.fixture
def url(postgresql_server: postgresql.Cluster) -> str:
    return postgresql_server.database()


@pytest.fixture
def first(url: str) -> Iterator[Journal]:
    journal = Journal(url)
    journal.lead()
    yield journal
    journal.close()


@pytest.fixture
def second(url: str, first: Journal) -> Iterator[Journal]:
    journal = Journal(url)
    yield journal
    journal.close()


def until(question: Callable[[], bool], words: str) -> None:
    deadline = time.monotonic() + 60
    while not question():
        assert time.monotonic() < deadline, words
        time.sleep(0.02)


def pids(server: postgresql.Cluster, journal: Journal) -> list[str]:
    return server.sql("postgres", SESSIONS.format(journal.url.database)).split()


def test_a_new_leader_waits_until_the_lease_of_the_one_before_is_over(first: Journal, second: Journal) -> None:
    first.close()
    began = time.monotonic()
    second.lead()
    until(second.leadership.may_act, "it never acts")
    assert time.monotonic() - began >= LEASE_S


def test_the_very_first_leader_has_nobody_to_wait_for(first: Journal) -> None:
    assert first.leadership._lease.may_begin == float("-inf")
    until(first.leadership.may_act, "it never acts")


def test_a_lost_session_is_made_anew_and_the_term_goes_on(
    first: Journal, second: Journal, postgresql_server: postgresql.Cluster
) -> None:
    (before,) = pids(postgresql_server, first)
    postgresql_server.sql("postgres", f"SELECT pg_terminate_backend({before})")
    until(lambda: pids(postgresql_server, first) not in ([], [before]), "no new session")
    until(first.leadership.may_act, "the term does not go on")
    assert first.leadership._lease.epoch == 1
    assert second.leadership.campaign() is False, "the new session has the lock"


def test_a_term_that_began_elsewhere_ends_this_one_for_good(first: Journal) -> None:
    why: list[str] = []
    first.leadership.over = why.append
    with first.engine.begin() as db:
        db.execute(text("UPDATE meta SET value = '2' WHERE key = 'epoch'"))
    until(lambda: bool(why), "it does not notice")
    assert "epoch 1 has ended, 2 has begun" in why[0]
    assert first.leadership.may_act() is False
    assert first.leadership.trouble == why[0]


def test_a_leader_that_stands_still_loses_its_lock(first: Journal, second: Journal) -> None:
    """As if its process were stopped: nothing is asked any more, and the server ends the session by itself."""
    first.leadership._stopping.set()
    until(second.leadership.campaign, "the lock is kept by nobody")
    until(lambda: not first.leadership.may_act(), "and it still believes that it leads")
    assert second.leadership.begin_term() == 2


def test_a_winner_that_stood_still_before_its_term_tries_anew(url: str, postgresql_server: postgresql.Cluster) -> None:
    """A busy machine reads the playbooks for seconds after the lead was won."""
    winner = Journal(url)
    winner.prepare()
    try:
        assert winner.leadership.campaign()
        (session,) = pids(postgresql_server, winner)
        postgresql_server.sql("postgres", f"SELECT pg_terminate_backend({session})")
        until(lambda: not pids(postgresql_server, winner), "the session stays")
        assert winner.lead() == 1
        until(winner.leadership.may_act, "it never acts")
    finally:
        winner.close()


def test_a_winner_that_stood_still_leaves_the_term_of_who_was_quicker_alone(
    url: str, postgresql_server: postgresql.Cluster
) -> None:
    slow, quick = Journal(url), Journal(url)
    slow.prepare()
    try:
        assert slow.leadership.campaign()
        (session,) = pids(postgresql_server, slow)
        postgresql_server.sql("postgres", f"SELECT pg_terminate_backend({session})")
        until(quick.leadership.campaign, "the lock stays")
        assert quick.lead() == 1
        with pytest.raises(LeadTakenError):
            slow.lead()
        with quick.engine.connect() as db:
            assert db.execute(text("SELECT value FROM meta WHERE key = 'epoch'")).scalar_one() == "1"
    finally:
        slow.close()
        quick.close()


def test_a_lease_that_was_not_confirmed_in_time_is_no_lease() -> None:
    """The lock answers late: what counts is when it was asked."""

    class Slow:
        can_be_lost = True
        where = "here"

        def acquire(self) -> bool:
            return True

        def epoch(self) -> int:
            return 1

        def raise_epoch(self) -> int:
            time.sleep(LEASE_S)
            return 1

        def release(self) -> None: ...

        def hand_over(self) -> None: ...

    leadership = Leadership(Slow())
    leadership._stopping.set()
    leadership.begin_term()
    assert leadership.may_act() is False
    leadership.resign()


class Moody:
    """A lock that fails once in a way nobody thought of."""

    can_be_lost = True
    where = "a test"

    def __init__(self) -> None:
        self.moods = [ValueError("the driver's own error")]

    def acquire(self) -> bool:
        return True

    def epoch(self) -> int:
        if self.moods:
            raise self.moods.pop()
        return 1

    def raise_epoch(self) -> int:
        return 1

    def release(self) -> None:
        pass

    def hand_over(self) -> None:
        pass


def test_an_error_that_nobody_thought_of_does_not_end_the_confirming() -> None:
    """Else the process would lead for ever and never act."""
    lock = Moody()
    leadership = Leadership(lock)
    leadership.begin_term()
    until(lambda: not lock.moods, "it does not ask")
    until(lambda: leadership.trouble == "" and leadership.may_act(), "it gave up")
    first = leadership._lease.confirmed
    until(lambda: leadership._lease.confirmed > first, "it does not go on")
    leadership.resign()

"""PostgreSQL itself fails over to its standby: a URL with both hosts finds the one that takes writes, and the term goes on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from remediator.model.journal_records import AuditEvent
from remediator.model.pipeline_inputs import Tick
from remediator.state.state_changes import StateChanges
from remediator.store.journal import Journal
from tests import postgresql

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def pair() -> Iterator[tuple[postgresql.Cluster, postgresql.Cluster]]:
    """A server and its synchronous standby; a short path, for their sockets."""
    if why := postgresql.why_not():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="gh-pg-") as folder:
        place = Path(folder)
        place.chmod(0o755)
        primary = postgresql.Cluster(place / "a")
        primary.start()
        standby = postgresql.Cluster(place / "b", standby_of=primary)
        standby.start()
        primary.wait_for_standby()
        yield primary, standby
        standby.stop("immediate")


def commit(journal: Journal, epoch: int, number: int) -> None:
    """A batch with one event."""
    event = AuditEvent(at=float(number), kind="note", text=f"event {number}")
    journal.commit([Tick(at=float(number))], StateChanges(audit=[event]), epoch, number)


def test_what_was_acknowledged_is_there_and_the_term_goes_on(
    pair: tuple[postgresql.Cluster, postgresql.Cluster],
) -> None:
    primary, standby = pair
    url = f"{primary.database()}&host={standby.place}&target_session_attrs=read-write"
    journal = Journal(url)
    epoch = journal.lead()
    commit(journal, epoch, 1)
    primary.stop("immediate")
    with pytest.raises(OperationalError):
        commit(journal, epoch, 2)
    standby.promote()
    ends = time.monotonic() + 60
    while not journal.leadership.may_act():
        assert time.monotonic() < ends, journal.leadership.trouble
        time.sleep(0.05)
    commit(journal, epoch, 2)
    assert [event.text for _, event in journal.events(0, 10)] == ["event 1", "event 2"]
    assert journal.leadership.trouble == ""
    journal.close()

"""The watch with a real engine on a real database: what it finds is written, and another leader goes on from there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from remediator.engine import Engine
from remediator.model.inputs import FindingsReported
from remediator.roster import Roster
from remediator.store.journal import Journal
from remediator.watch.leftovers import UNTESTED_S, ended
from remediator.watch.passes import PASS_ROWS
from remediator.watch.watcher import Watcher
from tests.timelines.story import settings
from tests.unit.remediator.watch.fleet import Fleet, own
from tests.unit.remediator.watch.test_slow_jobs import slow
from vocabulary.clock import ManualClock, SystemClock
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.wire import RankStatus, Report

ROWS = 3 * PASS_ROWS + 8


class Leader:
    """One term: an engine, a roster, a watch; the clock is the fleet's."""

    def __init__(self, url: str, fleet: Fleet) -> None:
        self.fleet, self.clock, self.roster = fleet, ManualClock(fleet.now), Roster()
        self.engine = Engine(Journal(url), settings(), SystemClock(), lambda _snapshot: None)
        self.engine.start()
        self._seq = 0
        for name in fleet.names:
            known = FindingsReported(at=time.time(), node=name, boot_id="b", active=())
            self.engine.submit_durably(known).result(60)
        self.watcher = Watcher(self.engine, self.roster, self.clock, lambda *_: ())

    def hear(self, ranks: dict[str, list[RankStatus]]) -> None:
        self._seq += 1
        for name in self.fleet.names:
            now = self.clock.wall()
            report = Report(
                version=1, node=name, boot_id="b", agent=f"a{id(self)}", seq=self._seq, sent_at=now, ttl_s=30.0,
                health=Health.HEALTHY, ranks=tuple(ranks.get(name, ())),
            )  # fmt: skip
            self.roster.take(report, now)
        self.watcher.look()

    def train(self, rows: int) -> None:
        for _ in range(rows):
            heard = self.fleet.say(slow(5))
            self.clock.advance(self.fleet.now - self.clock.wall())
            self.hear({word.node: [*word.ranks] for word in heard})

    def concluded(self) -> list[Finding]:
        return [f for f in self.engine.snapshot.findings.values() if f.active and f.origin.startswith("centre:")]

    def end(self) -> None:
        self.engine.stop()
        self.engine._journal.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/r.db"


def test_what_one_leader_found_the_next_neither_doubles_nor_loses(url: str) -> None:
    fleet = Fleet()
    first = Leader(url, fleet)
    first.train(ROWS)
    (found,) = first.concluded()
    incidents = set(first.engine.snapshot.incidents)
    first.end()
    second = Leader(url, fleet)
    second.train(8)
    assert second.concluded() == [found]
    second.train(ROWS)
    (still,) = second.concluded()
    assert (still.id, still.first_seen, still.count) == (found.id, found.first_seen, found.count)
    assert set(second.engine.snapshot.incidents) == incidents
    second.hear({})
    assert second.concluded() == [still], "its job has gone, and it waits for its test"
    second.end()


def finding(severity: Severity, level: str, check: str = "straggler") -> Finding:
    found = own("n0", f"{check}/gpu", severity=severity)
    return replace(found, evidence={"level": level}, last_seen=0.0)


def test_a_weak_suspicion_goes_with_its_job_and_a_strong_one_waits_a_day_for_its_test() -> None:
    weak, strong = finding(Severity.WARNING, "watch"), finding(Severity.WARNING, "now")
    grave, lemon = finding(Severity.ERROR, "watch"), finding(Severity.ERROR, "", "lemon")
    assert [f.cleared_by for f in ended([weak, strong, grave, lemon], 10.0)] == ["the job has ended"]
    late = ended([strong, grave, lemon], UNTESTED_S + 1)
    assert [f.id for f in late] == [strong.id, grave.id]

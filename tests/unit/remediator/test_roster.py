from __future__ import annotations

from remediator.roster import Roster
from vocabulary.health import Health
from vocabulary.wire import RankStatus, Report


def report(agent: str, seq: int, sent_at: float, job: str) -> Report:
    rank = RankStatus(job, 0, 0, 1, 1, 5, "step", sent_at)
    return Report(
        version=1,
        node="n1",
        boot_id="b",
        agent=agent,
        seq=seq,
        sent_at=sent_at,
        ttl_s=30,
        health=Health.HEALTHY,
        ranks=(rank,),
    )


def jobs(roster: Roster) -> list[str]:
    entry = roster.get("n1")
    assert entry is not None
    return [ref.job for ref in entry.jobs]


def test_a_new_agent_is_believed_although_the_old_ones_clock_was_ahead() -> None:
    roster = Roster()
    roster.take(report("a", 5, 90_000.0, "old"), 0.0)
    roster.take(report("b", 1, 3_600.0, "new"), 1.0)
    assert jobs(roster) == ["new"]
    roster.take(report("a", 6, 90_001.0, "old"), 2.0)
    assert jobs(roster) == ["new"], "an agent that was superseded is old for good"
    roster.take(report("b", 1, 3_600.0, "older"), 3.0)
    assert jobs(roster) == ["new"], "a repeated report says nothing new"

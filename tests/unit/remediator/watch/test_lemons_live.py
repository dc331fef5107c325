"""Lemons from what a store holds of the nodes' past, to findings that the pipeline gets."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from remediator.engine.decision_engine import StateSnapshot
from remediator.model.journal_records import NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.pipeline_inputs import VerdictsReached
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner
from remediator.monitoring import lemon_findings
from remediator.monitoring.lemon_monitor import AGAIN_S, EVERY_S, FIRST_S, MEMORY_S, LemonMonitor
from remediator.state.state_changes import StateChanges
from remediator.store.journal import Journal
from remediator.store.occurrence_queries import OccurrenceQueries
from tests.timelines.timeline import Story
from vocabulary.finding import Finding, Severity

DAY_S, NOW = 86400.0, 1_700_000_000.0
FLEET = [NodeRecord(node=f"n{number:03}") for number in range(200)]


def failure(node: str, days_ago: float, kind: str = "node/suspected", **more: object) -> Occurrence:
    given = {"jobs": ("big",), "job_nodes": 8, "incident": f"i-{node}-{days_ago}"} | more
    return Occurrence(NOW - days_ago * DAY_S, kind, node, **given)  # type: ignore[arg-type]  # fields by name


def usual() -> list[Occurrence]:
    """Some nodes fail once; n007 does every other day, with different Xids, and failed a test."""
    past = [failure(f"n{number:03}", number % 27 + 0.5) for number in range(100, 140)]
    for day in range(1, 27, 2):
        past += [failure("n007", day), failure("n007", day, f"xid/{(48, 79, 95)[day % 3]}", incident="")]
    return [*past, failure("n007", 3.0, "failed/preflight")]


def by_node(found: list[Finding]) -> dict[str, Finding]:
    return {finding.node: finding for finding in found}


def test_a_node_that_fails_again_and_again_is_a_lemon_and_one_that_failed_once_is_none() -> None:
    found = by_node(lemon_findings.build_lemon_findings(usual(), FLEET, NOW))
    worst = found["n007"]
    assert worst.kind == "lemon/confirmed"
    assert worst.severity is Severity.ERROR
    assert float(worst.evidence["probability"]) > 0.9
    assert worst.evidence["advice"] in ("repair", "replace")
    assert all(finding.severity is Severity.INFO for node, finding in found.items() if node != "n007")


def test_a_fault_that_two_repairs_did_not_fix_makes_no_suspect() -> None:
    past = usual()[:40]
    for day in (9.0, 8.2, 7.4, 6.5):
        past += [failure("n007", day), failure("n007", day - 0.01, "node/isolated")]
        past += [failure("n007", day - 0.2, "node/returned", incident="")]
    found = by_node(lemon_findings.build_lemon_findings(past, FLEET, NOW))
    assert "n007" not in found or found["n007"].severity is Severity.INFO


@pytest.mark.parametrize("fleet", [3, 5, 200])
def test_one_incident_makes_no_lemon_and_without_time_in_service_says_nothing(fleet: int) -> None:
    nodes = [NodeRecord(node=f"n{number:03}") for number in range(fleet)]
    kinds = ("node/suspected", "node/isolated", "xid/79", "xid/48", "action/ticket", "failed/preflight")
    drill = [failure("n001", 0.003, kind, incident="i-1", jobs=(), job_nodes=0) for kind in kinds]
    assert lemon_findings.build_lemon_findings(drill, nodes, NOW) == []
    later = lemon_findings.build_lemon_findings(drill, nodes, NOW + 3 * DAY_S)
    assert {finding.severity for finding in later} <= {Severity.INFO}


@pytest.mark.parametrize("kind", ["rule/lemon-to-be-tested", "node/drilled"])
def test_what_we_took_out_for_a_suspicion_of_our_own_or_a_drill_does_not_speak_against_it(kind: str) -> None:
    past = [failure("n007", day) for day in range(1, 27, 2)] + usual()[:40]
    own = [
        failure("n007", day, kind, incident=f"i-n007-{day}") for day in range(1, 27, 2)
    ]  # fmt: skip
    assert "n007" in by_node(lemon_findings.build_lemon_findings(past, FLEET, NOW))
    assert "n007" not in by_node(lemon_findings.build_lemon_findings([*past, *own], FLEET, NOW))


@pytest.mark.parametrize("injected", [True, False])
def test_a_drill_on_a_node_that_is_ill_anyway_is_told_from_a_failure_of_its_own(injected: bool) -> None:  # noqa: FBT001 - a table
    story = Story()
    story.finding("throttle/thermal", Severity.WARNING)
    story.finding("xid/79", Severity.FATAL, injected=injected)
    (isolated,) = [o for o in story.occurrences if o.kind == "node/isolated"]
    assert not isolated.injected, "the incident is real"
    drilled = [o.incident for o in story.occurrences if o.kind == "node/drilled" and not o.injected]
    assert drilled == [isolated.incident] * injected


@pytest.mark.parametrize("kind", ["hang/dead_rank", "hang/stuck_compute"])
def test_a_hang_counts_only_where_a_rule_took_the_node_out_for_it(kind: str) -> None:
    """Else the node of rank 0, for which the others wait when a program goes wrong, would be a lemon."""
    pointed_at = [failure("n007", 2.0 + 2 * n, kind, jobs=(f"j{n}",), job_nodes=16) for n in range(12)]
    assert "n007" not in by_node(lemon_findings.build_lemon_findings([*usual()[:40], *pointed_at], FLEET, NOW))
    suspected = [replace(each, kind="node/suspected") for each in pointed_at]
    assert "n007" in by_node(lemon_findings.build_lemon_findings([*usual()[:40], *pointed_at, *suspected], FLEET, NOW))


def test_nothing_is_said_without_a_past_nor_of_what_is_no_part_of_the_cluster() -> None:
    assert lemon_findings.build_lemon_findings([], FLEET, NOW) == []
    gone = [NodeRecord(node="n007", state=NodeState.RETIRED), *(node for node in FLEET if node.node != "n007")]
    assert "n007" not in by_node(lemon_findings.build_lemon_findings(usual(), gone, NOW))
    assert (
        lemon_findings.build_lemon_findings([failure("stranger", 1.0), failure("n001", 1.0, "xid/abc")], FLEET, NOW)
        == []
    )


def test_a_node_that_people_gave_back_is_in_service_again() -> None:
    out = [failure("n007", 20.0, "node/isolated"), *usual()[:40]]
    back = [NodeRecord(node="n007", since=NOW - 10 * DAY_S) if node.node == "n007" else node for node in FLEET]
    still = [NodeRecord(node="n007", held=True) if node.node == "n007" else node for node in FLEET]
    rows = {
        held: [row for row in lemon_findings._record_rows(out, fleet) if row[0] == 7]
        for held, fleet in ((0, back), (1, still))
    }
    assert (len(rows[0]), len(rows[1])) == (2, 1)


def test_who_comes_back_from_replacement_was_repaired() -> None:
    story = Story()
    story.job("train", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.no_job("n1", "n2")
    story.orders_end("abort")
    story.hold(drained=True)
    assert story.node_state() == "replacing"
    story.after(1).hold(owner=HoldOwner.NOBODY, schedulable=True)
    assert story.node_state() == "probation"
    assert [o.node for o in story.occurrences if o.kind == "node/repaired"] == ["n1"]


def test_it_is_judged_from_the_store_once_an_hour_and_told_once(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    old = failure("n003", (MEMORY_S + 1) / DAY_S)
    drill = failure("n004", 1.0, injected=True)
    journal.commit([], StateChanges(occurrences=[*usual(), old, drill, failure("n005", 1.0, "xidious/1")]), epoch)
    store = OccurrenceQueries(journal.engine)
    read = store.occurrences([*lemon_findings.KINDS], [lemon_findings.XID], NOW - MEMORY_S)
    assert len(read) == len(usual())
    watch, snapshot = LemonMonitor(store, NOW - FIRST_S), StateSnapshot({n.node: n for n in FLEET}, {}, {}, {}, {})
    told = watch(snapshot, NOW)
    assert "n007" in by_node([*told])
    assert watch(snapshot, NOW + 1) == ()
    watch.written(NOW + 1)
    assert watch(snapshot, NOW + AGAIN_S), "that was not what it said at the look before"
    watch.written(NOW + AGAIN_S)
    assert watch(snapshot, NOW + 2 * AGAIN_S) == ()
    known = StateSnapshot(snapshot.nodes, {f.id: f for f in told}, {}, {}, {})
    again = watch(known, NOW + AGAIN_S + EVERY_S)
    assert {(f.id, f.count) for f in again} <= {(f.id, f.count) for f in told}, (
        "figures may be told anew, no new finding"
    )
    assert isinstance(VerdictsReached(at=NOW, findings=told).findings[0], Finding)
    journal.close()


def test_a_node_that_tells_of_very_many_takes_nobodys_past_away(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    journal = Journal(database)
    flood = [failure("liar", number / 1000, "xid/94") for number in range(60)]
    older = [failure(f"n{number:03}", days, "xid/79") for number in range(10) for days in (5.0, 9.0)]
    journal.commit([], StateChanges(occurrences=[*older, *flood]), journal.lead())

    def nodes(rows_max: int) -> Counter[str]:
        read = OccurrenceQueries(journal.engine, rows_max).occurrences(
            [*lemon_findings.KINDS], [lemon_findings.XID], NOW - MEMORY_S
        )
        assert max(each.at for each in read if each.node == "liar") == NOW
        return Counter(each.node for each in read)

    assert nodes(80).total() == 80
    assert not caplog.messages
    honest = {f"n{number:03}": 2 for number in range(10)}
    assert nodes(79) == {"liar": 59, **honest}
    assert nodes(40) == {"liar": 20, **honest}
    assert "about the newest 20 of each node count" in caplog.messages[-1]
    assert nodes(22) == {"liar": 2, **honest}
    assert nodes(11) == {"liar": 1, **dict.fromkeys(honest, 1)}
    journal.close()

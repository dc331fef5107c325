"""What a node says later, or beside it, changes nothing that the record says of others or that the controller found itself."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.state.cluster_state import ClusterState
from remediator.state.state_changes import StateChanges
from remediator.store import table_schema
from remediator.store.journal import Journal
from tests.timelines.timeline import Story
from vocabulary.finding import Finding, Severity


def changes(finding: Finding) -> StateChanges:
    state = ClusterState()
    state.put_finding(finding)
    return state.take_changes()


def test_the_row_of_a_finding_stays_with_its_node(database: str) -> None:
    journal = Journal(database)
    epoch = journal.lead()
    mine = Story().finding("xid/79", Severity.FATAL)
    journal.commit([], changes(mine), epoch)
    journal.commit([], changes(replace(mine, node="n2", severity=Severity.INFO, summary="nothing")), epoch)
    newer = replace(mine, count=7)
    with journal.engine.connect() as db:
        assert db.execute(table_schema.findings.select()).one().node == "n1"
    journal.commit([], changes(newer), epoch)
    assert journal.load().findings == {mine.id: newer}
    journal.close()


def test_evidence_overrides_no_fact_of_the_audit_log() -> None:
    story = Story()
    told = {"severity": "info", "finding": "other", "kind": "fan/slow", "volts": 3}
    finding = story.finding("xid/79", Severity.FATAL, evidence=told)
    (data,) = [event.data for event in story.audit if event.kind == "finding_raised"]
    assert (data["finding"], data["kind"], data["severity"]) == (finding.id, "xid/79", "fatal")
    assert data["volts"] == 3

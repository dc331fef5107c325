"""What the journal remembers around an incident."""

from __future__ import annotations

from remediator.model.journal_records import Incident, IncidentState, JobRef, NodeRecord
from remediator.model.pipeline_inputs import AnyInput, PlacementChanged, Tick
from remediator.state.cluster_state import ClusterState
from remediator.store.incident_queries import IncidentQueries
from remediator.store.journal import Journal

NOW = 1_700_000_000.0
DAY_S = 86400.0


def incident(name: str, at: float, node: str = "n1") -> Incident:
    return Incident(id=name, node=node, title="t", opened_at=at, state=IncidentState.CLOSED, closed_at=at + 1)


def filled(database: str) -> Journal:
    journal = Journal(database)
    state = ClusterState()
    state.put_node(NodeRecord(node="n1", since=NOW))
    now = incident("now", NOW)
    for each in (
        now,
        incident("before", NOW - DAY_S),
        incident("long-ago", NOW - 90 * DAY_S),
        incident("later", NOW + 5),
        incident("elsewhere", NOW - 5, "n2"),
    ):
        state.put_incident(each)
    state.note(NOW, "first", "of the incident", incident=now)
    state.note(NOW + 1, "second", "of the incident", incident=now)
    state.note(NOW + 1, "other", "of none")

    def placed(at: float, *jobs: JobRef) -> AnyInput:
        return PlacementChanged(at=at, node="n1", jobs=jobs)

    inputs = [
        placed(NOW - 50, JobRef("j1", 3)),
        placed(NOW + 1, JobRef("j1", 1), JobRef("j3", 9)),
        Tick(at=NOW + 2),
        placed(NOW + 60),
        placed(NOW + 90, JobRef("j1", 2)),
        placed(NOW + 95, JobRef("j1", 3)),
        placed(NOW + 9000, JobRef("j2", 8)),
    ]
    journal.commit(inputs, state.take_changes(), journal.lead())
    return journal


def test_the_audit_log_of_one_incident(database: str) -> None:
    journal = filled(database)
    kinds = [event.kind for event in IncidentQueries(journal.engine).events("now")]
    assert kinds == ["first", "second"]
    journal.close()


def test_earlier_incidents_of_the_same_node(database: str) -> None:
    journal = filled(database)
    found = IncidentQueries(journal.engine).earlier(incident("now", NOW), 30 * DAY_S)
    assert [each.id for each in found] == ["before"]
    journal.close()


def test_a_job_is_back_when_a_later_attempt_of_it_is_seen(database: str) -> None:
    journal = filled(database)
    assert IncidentQueries(journal.engine).returns({"j1": 1, "j2": 7}, NOW, NOW + 1000) == {"j1": NOW + 90}
    assert IncidentQueries(journal.engine).returns({"j1": 1, "j2": 7}, NOW, NOW + 10_000)["j2"] == NOW + 9000
    journal.close()

"""What was dealt with stays dealt with, and the past is remembered, whatever becomes of the process and of old rows."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import (
    FindingsReported,
    IncidentCommand,
    IncidentCommandKind,
    IncidentReopened,
    Tick,
)
from remediator.model.plan_steps import Mode
from remediator.pipeline import apply_input
from remediator.state.cluster_state import ISOLATION, ClusterState
from remediator.store.journal import LATEST, Journal
from remediator.store.retention import RetentionCleaner, RetentionSettings
from tests.timelines.timeline import START, Story, settings
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity

DAY_S = 86400.0
RULES = settings(mode=Mode.RECOMMEND)


class Centre:
    """The pipeline on a real database, started anew as often as one likes."""

    def __init__(self, database: str) -> None:
        self.journal = Journal(database)
        self.epoch = self.journal.lead()
        self.state = ClusterState()
        self.now = START

    def submit(self, item: FindingsReported | IncidentCommand | IncidentReopened | Tick) -> None:
        apply_input(self.state, item, RULES)
        self.journal.commit([item], self.state.take_changes(), self.epoch)

    def begin_anew(self) -> None:
        self.state = self.journal.load()
        self.submit(Tick(at=self.now))

    def report(self, *findings: Finding) -> None:
        self.submit(FindingsReported(at=self.now, node="n1", boot_id="b", changes=findings, active=findings))

    def resolved(self) -> str:
        """Let a person close the one open incident; its id."""
        (incident,) = self.state.incidents.values()
        word = IncidentCommandKind.RESOLVE
        self.submit(IncidentCommand(at=self.now, incident=incident.id, node="n1", word=word, actor="ann"))
        assert not self.state.incidents
        return incident.id


def fault(**more: object) -> Finding:
    made = Story(RULES, nodes=1).finding("row_remap/failure", Severity.ERROR)
    return replace(made, **more)


def test_what_a_person_settled_is_not_taken_up_again_once_its_incident_is_forgotten(database: str) -> None:
    centre = Centre(database)
    centre.report(fault())
    settled = centre.resolved()
    centre.now += 400 * DAY_S
    centre.report(fault())
    supervisor = RetentionCleaner(centre.journal.engine, RetentionSettings(), ManualClock(centre.now))
    while supervisor.step(centre.epoch):
        pass
    assert centre.journal.incident(settled) is None, "its time is over"
    centre.begin_anew()
    assert centre.state.settled == {fault().id: Settlement(settled, "ann resolved it", START)}
    assert not centre.state.incidents, "the finding has been there all the time, and somebody knew"
    centre.report(fault(severity=Severity.FATAL))
    assert centre.state.incidents, "but it has grown graver"
    centre.journal.close()


def test_what_is_open_again_or_came_again_is_settled_by_nobody(database: str) -> None:
    centre = Centre(database)
    centre.report(fault())
    name = centre.resolved()
    found = centre.journal.incident(name)
    assert found is not None
    closed, findings, _, _ = found
    assert closed.state is IncidentState.CLOSED
    centre.submit(IncidentReopened(at=centre.now, incident=closed, findings=tuple(findings), actor="ann"))
    centre.begin_anew()
    assert centre.state.settled == {}
    centre.resolved()
    centre.report()
    centre.begin_anew()
    assert centre.state.settled == {}, "it cleared"
    centre.report(fault())
    centre.begin_anew()
    assert centre.state.incidents, "and came again"
    centre.journal.close()


def test_one_input_from_the_future_does_not_make_the_past_forgotten(database: str) -> None:
    centre = Centre(database)
    centre.report(fault())
    (incident,) = centre.state.incidents.values()
    centre.state.remember_occurrence(centre.now, ISOLATION, incident)
    centre.report(fault(count=2))
    centre.report()
    centre.submit(Tick(at=centre.now + 10 * 365 * DAY_S))
    for _ in range(LATEST // 2):
        centre.journal.commit([Tick(at=centre.now)], centre.state.take_changes(), centre.epoch)
    again = centre.journal.load()
    assert again.isolated_at == [centre.now], "the rate counts it"
    assert fault().id in again.findings
    centre.journal.close()

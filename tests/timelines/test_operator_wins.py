"""Other people's hands: an operator's own drain or undrain always wins, and nothing of theirs is ever lifted by us."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import FindingsReported
from remediator.model.scheduler_hold import ActionResult, HoldOwner
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderKind


def test_a_node_an_operator_drained_is_left_alone_but_its_trainer_is_told() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon", ActionResult.REFUSED)
    assert story.node_state() == "operator-held"
    assert not story.state.nodes["n1"].held
    assert len(story.open_actions(OrderKind.CHECKPOINT_THEN_EJECT.value)) == 2
    story.orders_end(OrderKind.CHECKPOINT_THEN_EJECT.value)
    (incident,) = story.state.incidents.values()
    assert incident.state is IncidentState.WAITING
    assert not story.open_actions("reset_gpu")
    assert not story.open_actions("resume")


def test_an_operator_who_lifts_our_hold_ends_the_incident_and_is_not_overruled() -> None:
    story = Story()
    finding = story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(5).hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.node_state() == "probation"
    assert not story.state.incidents
    story.finding("row_remap/pending", Severity.ERROR)  # a new fact may act again
    assert story.state.incidents
    assert finding.id in story.state.settled


def test_the_fact_an_operator_overruled_does_not_drain_again() -> None:
    story = Story()
    finding = story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(5).hold(schedulable=True, owner=HoldOwner.NOBODY)
    again = replace(finding, count=2, last_seen=story.now)
    story.submit(FindingsReported(at=story.now, node="n1", boot_id="b", changes=(again,), active=(again,)))
    assert not story.state.incidents
    assert not story.state.nodes["n1"].held


def test_our_own_resume_is_not_mistaken_for_an_operators() -> None:
    story = Story()
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)  # Slurm is quicker than our own outcome
    story.scheduler_answers("resume")
    closed = [i for i in story.incidents.values() if i.closed_at is not None]
    assert [i.outcome for i in closed] == ["returned to service"]


def test_a_scheduler_that_cannot_be_asked_changes_nothing() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(5).hold(schedulable=None, owner=HoldOwner.NOBODY)
    assert story.state.nodes["n1"].held
    assert story.node_state() == "replacing"


def test_an_operators_hold_on_a_healthy_node_is_shown_and_its_end_too() -> None:
    story = Story()
    story.hold("n3", owner=HoldOwner.OPERATOR)
    assert story.node_state("n3") == "operator-held"
    story.after(1).hold("n3", owner=HoldOwner.NOBODY, schedulable=True)
    assert story.node_state("n3") == "probation"

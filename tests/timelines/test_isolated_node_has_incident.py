"""A node that is out because of us is always somebody's: there is an incident, and people were told why."""

from __future__ import annotations

from remediator.model.journal_records import Answer, IncidentState, NodeRecord
from remediator.model.pipeline_inputs import (
    HoldsObserved,
    IncidentCommand,
    IncidentCommandKind,
    NodeCommand,
    NodeCommandKind,
)
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from tests.timelines.timeline import Story
from vocabulary.finding import Severity


def say(story: Story, word: NodeCommandKind) -> None:
    story.submit(NodeCommand(at=story.now, node="n1", word=word, actor="ann", text="a new fan"))


def called(story: Story) -> list[str]:
    """What people were told about n1 that it waits for, in order."""
    return [str(a.data["how"]) for a in story.actions.values() if ".waits." in a.id]


def drained(story: Story) -> None:
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)


def test_people_are_told_again_when_a_node_waits_for_something_else() -> None:
    story = Story()
    finding = story.finding("xid/62", Severity.FATAL)
    drained(story)
    say(story, NodeCommandKind.HOLD)
    story.after(3)
    assert len(called(story)) == 1
    story.clear(finding)
    say(story, NodeCommandKind.RELEASE)
    assert "the controller still holds the node" in called(story)[-1]
    story.after(3).hold(drained=True, owner=HoldOwner.US)
    assert len(called(story)) == 2


def waits(story: Story) -> str:
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.WAITING
    return incident.outcome


def test_our_hold_that_an_operator_took_and_gave_back_to_us_is_ours_again() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    drained(story)
    story.after(1).hold(owner=HoldOwner.OPERATOR)
    assert story.node_state() == "operator-held"
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert story.state.held == {"n1"}, "it counts"
    story.scheduler_answers("cordon")
    assert story.node_state() == "resetting", "what was wrong with it is dealt with anew"


def test_our_hold_that_our_database_does_not_know_is_told_of_and_can_be_lifted() -> None:
    story = Story()
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert (story.node_state(), story.state.held) == ("quarantined", {"n1"})
    assert "the controller holds the node without an incident" in waits(story)
    assert len(called(story)) == 1
    story.after(90_000)
    assert len(called(story)) == 1
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert (story.node_state(), story.state.held) == ("probation", frozenset())
    assert story.state.incident_of("n1") is None


def test_what_the_scheduler_says_right_after_our_resume_may_be_older_than_that() -> None:
    story = Story()
    finding = story.finding("fan/slow", Severity.ERROR)
    drained(story)
    story.orders_end("run_preflight")
    story.clear(finding)
    story.scheduler_answers("resume")
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert (story.node_state(), story.state.held) == ("probation", frozenset())
    story.after(90).hold(drained=True, owner=HoldOwner.US)
    assert story.state.held == {"n1"}


def test_hands_off_and_retired_nodes_are_left_where_they_are() -> None:
    story = Story()
    say(story, NodeCommandKind.HOLD)
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert story.node_state() == "operator-held"
    say(story, NodeCommandKind.RETIRE)
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert (story.node_state(), story.state.held) == ("retired", frozenset())
    say(story, NodeCommandKind.UNRETIRE)
    story.after(1).hold(drained=True, owner=HoldOwner.US)
    assert (story.node_state(), story.state.held) == ("quarantined", {"n1"}), "retiring it did not lift our hold"


def test_a_node_that_we_hold_without_an_incident_gets_one() -> None:
    story = Story()
    story.state.put_node(NodeRecord("n1", NodeState.QUARANTINED, held=True, hold_confirmed_at=story.now))
    story.after(1)
    assert "the controller holds the node without an incident" in waits(story)
    gone = SchedulerNodeState("n1", None, known=False)
    story.submit(HoldsObserved(at=story.now, holds=(gone,)))
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.open_actions("cordon"), "the scheduler forgot our hold, so it is asked for again"
    story.finding("xid/62", Severity.FATAL)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.answer is Answer.ACT, "what joins it is decided upon"


def test_an_incident_is_not_over_as_long_as_we_hold_its_node() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    drained(story)
    assert waits(story)
    incident = story.state.incident_of("n1")
    assert incident is not None
    word = IncidentCommand(at=story.now, incident=incident.id, node="n1", word=IncidentCommandKind.RESOLVE, actor="ann")
    story.submit(word)
    assert story.state.incident_of("n1") == incident
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert (story.node_state(), story.state.incident_of("n1")) == ("probation", None)

"""What people say of a node by the API: hands off, retired, and that it is over."""

from __future__ import annotations

from remediator.model.journal_records import IncidentState
from remediator.model.pipeline_inputs import NodeCommand, NodeCommandKind
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

HOLD, RELEASE, RETIRE, UNRETIRE = NodeCommandKind


def say(story: Story, word: NodeCommandKind, until: float | None = None, node: str = "n1") -> None:
    story.submit(NodeCommand(at=story.now, node=node, word=word, actor="ann", text="a new rack", until=until))


def free(story: Story) -> None:
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)


def test_hands_off_holds_whatever_the_scheduler_says_until_it_is_over() -> None:
    story = Story()
    say(story, HOLD)
    say(story, HOLD)
    free(story)
    assert story.node_state() == "operator-held"
    story.finding("xid/79", Severity.FATAL)
    assert not story.open_actions("cordon")
    say(story, RELEASE)
    assert (story.node_state(), bool(story.open_actions("cordon"))) == ("draining", True), "decided anew"
    assert [(e.actor, e.kind) for e in story.audit if e.kind == "node_said"] == [("ann", "node_said")] * 2
    assert "ann placed an operator hold on n1: a new rack" in [e.text for e in story.audit]


def test_a_release_closes_nothing_that_is_asserted() -> None:
    story = Story(settings(mode=Mode.OBSERVE))
    story.finding("xid/79", Severity.FATAL)
    before = story.state.incident_of("n1")
    assert before is not None
    say(story, HOLD)
    story.after(60)
    say(story, RELEASE)
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert (incident.id, incident.answer, incident.decisions) == (before.id, before.answer, 2)
    assert "incident_closed" not in story.kinds()
    story.after(4 * 3600)
    assert story.node_state() != "healthy"


def test_a_release_closes_what_is_asserted_no_more() -> None:
    story = Story(settings(mode=Mode.OBSERVE))
    finding = story.finding("xid/79", Severity.FATAL)
    say(story, HOLD)
    story.clear(finding)
    say(story, RELEASE)
    assert (story.node_state(), story.state.incident_of("n1")) == ("probation", None)


def test_hands_off_may_end_by_itself() -> None:
    story = Story()
    say(story, HOLD, until=story.now + 60)
    story.after(59)
    assert story.node_state() == "operator-held"
    story.after(1)
    assert story.node_state() == "probation"
    say(story, HOLD, until=story.now)
    assert story.node_state() == "probation", "over before it began"


def test_hands_off_a_node_that_we_hold_keeps_our_hold_and_what_is_known() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert story.open_actions("reset_gpu")
    say(story, HOLD)
    assert not story.open_actions("reset_gpu")
    assert story.state.held == {"n1"}, "it is still out because of us, and counts"
    story.after(3600)
    assert story.node_state() == "operator-held"
    say(story, RELEASE)
    story.scheduler_answers("cordon")
    assert story.node_state() == "resetting", "what was wrong with it is dealt with anew"
    assert story.open_actions("reset_gpu")


def test_our_hold_that_has_lost_its_reason_meanwhile_is_for_people_to_lift() -> None:
    story = Story()
    finding = story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    say(story, HOLD)
    story.clear(finding)
    say(story, RELEASE)
    assert story.node_state() == "quarantined"
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.WAITING
    assert "the controller still holds the node" in incident.outcome
    free(story)
    assert story.node_state() == "probation"


def test_their_own_drain_outlives_their_word() -> None:
    story = Story()
    story.hold(owner=HoldOwner.OPERATOR)
    say(story, HOLD)
    say(story, RELEASE)
    assert story.node_state() == "operator-held"
    free(story)
    assert story.node_state() == "probation"


def test_lifting_our_hold_by_hand_leaves_the_hands_off() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    say(story, HOLD)
    free(story)
    assert (story.node_state(), story.state.held) == ("operator-held", frozenset())


def test_a_retired_node_takes_no_place_and_nothing_is_done_to_it() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"
    say(story, RETIRE)
    say(story, RETIRE)
    assert (story.node_state(), story.state.held) == ("retired", frozenset())
    assert not story.state.incidents
    story.finding("xid/79", Severity.FATAL)
    say(story, HOLD)
    free(story)
    story.after(3600)
    assert story.node_state() == "retired"
    assert not story.open_actions("cordon")
    assert [i.state for i in story.state.incidents.values()] == [IncidentState.OPEN], "known, and nothing decided"


def test_a_machine_put_in_the_place_of_a_retired_one_begins_on_probation() -> None:
    story = Story()
    say(story, RETIRE)
    say(story, UNRETIRE)
    assert story.node_state() == "probation"
    story.hold(owner=HoldOwner.OPERATOR)
    say(story, RETIRE)
    say(story, UNRETIRE)
    assert story.node_state() == "operator-held"
    free(story)
    assert story.node_state() == "probation"
    assert sum(e.kind == "node_said" for e in story.audit) == 4


def test_nobody_speaks_of_a_node_that_is_not_known() -> None:
    story = Story()
    say(story, RETIRE, node="n9")
    assert "n9" not in story.state.nodes

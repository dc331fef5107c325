"""A person's hands off: what was planned and not done yet stays undone, and nothing is done to the node after the word."""

from __future__ import annotations

from remediator.model.hold import Owner, Result
from remediator.model.inputs import NodeSaid, NodeWord
from remediator.model.records import ActionState
from tests.timelines.story import Story
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind

TO_TRAINERS = {OrderKind.ABORT.value, OrderKind.CHECKPOINT_THEN_EJECT.value}
TO_PEOPLE = {"alert", "ticket", OrderKind.COLLECT_EVIDENCE.value}


def say(story: Story, word: NodeWord) -> None:
    story.tell(NodeSaid(at=story.now, node="n1", word=word, actor="ann", text="a new rack"))


def held_before_the_scheduler_answered(story: Story) -> Finding:
    finding = story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon", Result.FAILED)
    say(story, NodeWord.HOLD)
    return finding


def test_a_cordon_that_nobody_has_carried_out_is_withdrawn() -> None:
    story = Story()
    held_before_the_scheduler_answered(story)
    story.after(600)
    assert [a.state for a in story.actions.values() if a.verb == "cordon"] == [ActionState.CANCELLED]
    assert not story.open_actions("cordon")


def test_it_is_asked_for_again_once_the_word_is_over() -> None:
    story = Story()
    held_before_the_scheduler_answered(story)
    story.after(600)
    say(story, NodeWord.RELEASE)
    assert story.open_actions("cordon")
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert story.node_state() == "resetting"


def test_one_that_was_carried_out_all_the_same_stays_ours_to_answer_for() -> None:
    story = Story()
    finding = held_before_the_scheduler_answered(story)
    story.after(1).hold(owner=Owner.US)
    story.clear(finding)
    say(story, NodeWord.RELEASE)
    assert (story.node_state(), story.state.held) == ("quarantined", {"n1"})


def test_after_the_word_jobs_are_told_of_a_fault_and_nothing_is_done_to_the_node() -> None:
    story = Story()
    story.job("J", "n1", "n2")
    say(story, NodeWord.HOLD)
    story.after(5).finding("xid/79", Severity.FATAL)
    story.orders_end("abort")
    story.after(3600).hold(drained=True, owner=Owner.OPERATOR)
    story.after(3600)
    assert {a.verb for a in story.actions.values()} & TO_TRAINERS
    assert not {a.verb for a in story.actions.values()} - TO_TRAINERS - TO_PEOPLE
    assert story.node_state() == "operator-held"

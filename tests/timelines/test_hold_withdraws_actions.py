"""A person's hands off: what was planned and not done yet stays undone, and nothing is done to the node after the word."""

from __future__ import annotations

import pytest

from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import ActionState
from remediator.model.pipeline_inputs import NodeCommand, NodeCommandKind
from remediator.model.scheduler_hold import ActionResult, HoldOwner
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind

TO_TRAINERS = {OrderKind.ABORT.value, OrderKind.CHECKPOINT_THEN_EJECT.value}
TO_PEOPLE = {"alert", "ticket", OrderKind.COLLECT_EVIDENCE.value}


def say(story: Story, word: NodeCommandKind) -> None:
    story.submit(NodeCommand(at=story.now, node="n1", word=word, actor="ann", text="a new rack"))


def held_before_the_scheduler_answered(story: Story) -> Finding:
    finding = story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon", ActionResult.FAILED)
    say(story, NodeCommandKind.HOLD)
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
    say(story, NodeCommandKind.RELEASE)
    assert story.open_actions("cordon")
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert story.node_state() == "resetting"


def test_one_that_was_carried_out_all_the_same_stays_ours_to_answer_for() -> None:
    story = Story()
    finding = held_before_the_scheduler_answered(story)
    story.after(1).hold(owner=HoldOwner.US)
    story.clear(finding)
    say(story, NodeCommandKind.RELEASE)
    assert (story.node_state(), story.state.held) == ("quarantined", {"n1"})


def free(story: Story) -> None:
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)


def cordons(story: Story) -> list[ActionState]:
    return [a.state for a in story.actions.values() if a.verb == "cordon" and a.node == "n1"]


@pytest.mark.parametrize("seen_after_s", [5, 3600])
def test_a_node_that_was_in_service_all_along_is_not_taken_out_by_a_release(seen_after_s: float) -> None:
    story = Story()
    finding = held_before_the_scheduler_answered(story)
    free(story.after(seen_after_s))
    story.clear(finding)
    say(story, NodeCommandKind.RELEASE)
    free(story.after(600))
    assert (story.node_state(), story.state.held) == ("probation", frozenset())
    assert cordons(story) == [ActionState.CANCELLED]
    assert story.state.incident_of("n1") is None


def test_it_takes_no_place_of_others_once_the_scheduler_has_shown_it_in_service() -> None:
    story = Story(settings(budget=level_only_budget(1)))
    held_before_the_scheduler_answered(story)
    free(story.after(5))
    assert story.state.held == {"n1"}, "the cordon that was under way may come yet"
    free(story.after(60))
    assert not story.state.held
    assert "hold_let_go" in story.kinds()
    story.finding("xid/79", Severity.FATAL, node="n2")
    assert story.state.held == {"n2"}


def test_what_is_still_asserted_when_the_word_is_over_asks_the_budget_anew() -> None:
    story = Story(settings(budget=level_only_budget(1)))
    held_before_the_scheduler_answered(story)
    free(story.after(600))
    story.finding("xid/79", Severity.FATAL, node="n2")
    say(story, NodeCommandKind.RELEASE)
    assert (story.node_state(), story.state.held) == ("suspect", {"n2"})
    assert cordons(story) == [ActionState.CANCELLED]


def test_a_cordon_that_comes_after_all_takes_its_place_and_the_node_stays_theirs() -> None:
    story = Story()
    finding = held_before_the_scheduler_answered(story)
    free(story.after(600))
    story.after(1).hold(owner=HoldOwner.US)
    assert (story.node_state(), story.state.held) == ("operator-held", {"n1"})
    story.clear(finding)
    say(story, NodeCommandKind.RELEASE)
    assert (story.node_state(), story.state.held) == ("quarantined", {"n1"})
    free(story.after(1))
    assert (story.node_state(), story.state.held) == ("probation", frozenset())


def test_after_the_word_jobs_are_told_of_a_fault_and_nothing_is_done_to_the_node() -> None:
    story = Story()
    story.job("J", "n1", "n2")
    say(story, NodeCommandKind.HOLD)
    story.after(5).finding("xid/79", Severity.FATAL)
    story.orders_end("abort")
    story.after(3600).hold(drained=True, owner=HoldOwner.OPERATOR)
    story.after(3600)
    assert {a.verb for a in story.actions.values()} & TO_TRAINERS
    assert not {a.verb for a in story.actions.values()} - TO_TRAINERS - TO_PEOPLE
    assert story.node_state() == "operator-held"

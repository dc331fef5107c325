"""A scheduler that goes on saying what we did not believe when it said it first: it is looked at until the two agree."""

from __future__ import annotations

import pytest

from remediator.model.journal_records import NodeRecord, OperatorHold
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.overrides.hold_reconciliation import hold_contradicts_record
from tests.timelines.timeline import Story
from vocabulary.finding import Severity

FREE = SchedulerNodeState("n1", schedulable=True)
OURS = SchedulerNodeState("n1", schedulable=False, owner=HoldOwner.US)
THEIRS = SchedulerNodeState("n1", schedulable=False, owner=HoldOwner.OPERATOR)
DOWN = SchedulerNodeState("n1", schedulable=False, owner=HoldOwner.SCHEDULER)
SILENT = SchedulerNodeState("n1", schedulable=None)
CONFIRMED = NodeRecord("n1", NodeState.DRAINING, held=True, hold_confirmed_at=5.0)
ASKED = NodeRecord("n1", NodeState.DRAINING, held=True)
HEALTHY = NodeRecord("n1")
LEFT = NodeRecord("n1", NodeState.OPERATOR_HELD)
BY_WORD = NodeRecord("n1", NodeState.OPERATOR_HELD, hands_off=OperatorHold("ann"))
RETIRED = NodeRecord("n1", NodeState.RETIRED)


@pytest.mark.parametrize(
    ("node", "against"),
    [
        (CONFIRMED, [FREE, THEIRS]),
        (ASKED, [FREE, OURS, THEIRS]),
        (HEALTHY, [OURS, THEIRS]),
        (LEFT, [FREE, OURS]),
        (BY_WORD, [OURS]),
        (RETIRED, []),
    ],
)
def test_what_contradicts_what_we_have_written_down(node: NodeRecord, against: list[SchedulerNodeState]) -> None:
    assert [hold for hold in (FREE, OURS, THEIRS, DOWN, SILENT) if hold_contradicts_record(node, hold)] == against


def test_our_hold_that_was_lifted_before_it_was_confirmed_is_believed_when_it_is_told_again() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    story.scheduler_answers("cordon")
    assert hold_contradicts_record(story.state.nodes["n1"], FREE)
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert (story.node_state(), story.state.held) == ("probation", frozenset())
    assert not hold_contradicts_record(story.state.nodes["n1"], FREE)


def test_a_drain_that_only_our_cordon_saw_does_not_last_for_ever() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon", ActionResult.REFUSED)
    assert story.node_state() == "operator-held"
    assert hold_contradicts_record(story.state.nodes["n1"], FREE)
    story.after(1).hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.node_state() == "probation"


def test_a_hold_confirmed_by_a_clock_that_was_ahead_can_be_lifted() -> None:
    story = Story()
    right = story.now
    story.now = right + 3600
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.now = right
    story.after(60)
    story.now += 1
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.node_state() == "probation"

"""How far automation may go by a person's word, and what a stop holds up of what was planned before it."""

from __future__ import annotations

import pytest

from remediator.engine.decision_engine import StateSnapshot
from remediator.model.journal_records import ActionState
from remediator.model.pipeline_inputs import PolicyChanged
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner
from tests.timelines.test_operator_commands import isolated, set_mode
from tests.timelines.timeline import SHIPPED, Story, settings
from vocabulary.finding import Severity
from vocabulary.order import OrderKind


def test_a_persons_mode_counts_until_it_is_taken_back_whatever_a_term_begins_with() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    set_mode(story, Mode.ACT)
    story.submit(PolicyChanged(at=story.now, digest=SHIPPED.digest, source="x", mode=Mode.RECOMMEND))
    story.finding("xid/62", Severity.FATAL)
    assert story.open_actions("cordon")
    set_mode(story, None)
    story.finding("xid/62", Severity.FATAL, node="n2")
    assert [a.node for a in story.open_actions("cordon")] == ["n1"]
    assert story.kinds().count("mode_set") == 2


def test_a_bolder_mode_takes_up_at_once_what_waited_for_it() -> None:
    story = Story(settings(mode=Mode.OBSERVE))
    story.finding("xid/62", Severity.FATAL)
    assert not story.open_actions("cordon")
    set_mode(story, Mode.ACT)
    assert story.open_actions("cordon")


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_persons_mode_stops_plans_under_way_before_their_next_step(mode: Mode) -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    set_mode(story, mode)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.after(7200)
    assert not story.open_actions("reset_gpu")
    (incident,) = story.state.incidents.values()
    assert [run.detail for run in incident.plan[1]] == [f"waits: ann set the mode to {mode.value}"]
    set_mode(story, None)
    assert story.open_actions("reset_gpu")


def handed_out(story: Story, known: tuple[str, ...] = ()) -> list[OrderKind]:
    ordered = {"n1": [a for a in story.state.actions.values() if a.node == "n1" and a.order and not a.state.final]}
    snapshot = StateSnapshot(
        {},
        {},
        {},
        dict(story.state.actions),
        {},
        ordered=ordered,
        operator_overrides=dict(story.state.operator_overrides),
    )
    return [order.kind for order in snapshot.orders_for("n1", story.now, known)]


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_a_stop_hands_out_no_order_that_the_node_has_not_fetched(mode: Mode) -> None:
    story = isolated()
    (order,) = story.open_actions("reset_gpu")
    assert handed_out(story) == [OrderKind.RESET_GPU]
    set_mode(story, mode)
    assert handed_out(story) == []
    assert handed_out(story, (order.id,)) == [OrderKind.RESET_GPU], "nothing says that the node is to leave off"
    set_mode(story, Mode.ACT)
    assert handed_out(story) == [OrderKind.RESET_GPU]


def test_a_stop_splits_no_job_and_keeps_no_node_from_its_test() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    set_mode(story, Mode.OBSERVE)
    assert handed_out(story) == [OrderKind.CHECKPOINT_THEN_EJECT]
    tested = isolated()
    tested.orders_end("reset_gpu")
    set_mode(tested, Mode.OBSERVE)
    assert handed_out(tested) == [OrderKind.RUN_PREFLIGHT]


def test_what_was_withheld_until_its_time_was_over_is_no_failure_of_ours() -> None:
    stopped, failing = isolated(), isolated()
    set_mode(stopped, Mode.OBSERVE)
    for story in (stopped, failing):
        (order,) = story.open_actions("reset_gpu")
        story.after(order.deadline - story.now)
    assert set(failing.state.streak.failed) == {"reset_gpu"}
    assert not stopped.state.streak.failed
    assert stopped.actions[order.id].state is ActionState.CANCELLED


def test_no_mode_keeps_a_node_out_that_has_passed_its_test() -> None:
    story = isolated()
    story.orders_end("reset_gpu")
    set_mode(story, Mode.OBSERVE)
    for finding in story.state.active_on("n1"):
        story.clear(finding)
    story.after(1).orders_end("run_preflight")
    assert story.open_actions("resume")


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.RECOMMEND])
def test_under_a_stop_a_persons_drain_is_theirs_at_once_and_so_is_its_end(mode: Mode) -> None:
    """The cordon that was planned is not under way: nobody begins it, so no answer of it would say whose the drain is."""
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    set_mode(story, mode)
    story.after(1).hold(owner=HoldOwner.OPERATOR)
    assert story.node_state() == "operator-held"
    story.after(60).hold(owner=HoldOwner.NOBODY, schedulable=True)
    assert story.node_state() == "probation"
    assert not story.open_actions("cordon")
    set_mode(story, None)
    story.after(60).hold(owner=HoldOwner.NOBODY, schedulable=True)
    assert not story.open_actions("cordon"), "their word counts against what was known"


def test_without_a_stop_whose_a_drain_is_is_heard_from_the_cordon_that_is_under_way() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.after(1).hold(owner=HoldOwner.OPERATOR)
    assert story.node_state() != "operator-held"
    assert story.open_actions("cordon")


def test_a_cordon_that_was_begun_before_the_stop_and_carried_out_after_the_drain_is_known_as_ours() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    set_mode(story, Mode.OBSERVE)
    story.after(1).hold(owner=HoldOwner.OPERATOR)
    story.after(1).scheduler_answers("cordon")
    story.after(5).hold(owner=HoldOwner.US)
    assert story.state.nodes["n1"].held
    assert story.node_state() == "quarantined"

"""The two ways out, and what goes wrong on them: events in, decisions out."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import Answer, IncidentState
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import ActionResult, HoldOwner
from tests.timelines.timeline import TOLD_AT_ONCE, Story, settings
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind, OrderState

GRACEFUL = OrderKind.CHECKPOINT_THEN_EJECT.value
ABORT = OrderKind.ABORT.value


def graceful_until_drained(story: Story) -> Finding:
    story.job("j1", "n1", "n2", "n3")
    pending = story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(2).orders_end(GRACEFUL)
    story.after(1).hold(drained=True)
    return pending


def test_graceful_tells_every_rank_of_the_job_and_brings_the_node_back() -> None:
    story = Story()
    pending = graceful_until_drained(story)
    assert {a.node for a in story.actions.values() if a.verb == GRACEFUL} == {"n1", "n2", "n3"}
    assert all(a.order and a.order.condemned == ("n1",) for a in story.actions.values() if a.verb == GRACEFUL)
    assert story.node_state() == "resetting"
    story.after(1).orders_end("reset_gpu")
    assert story.node_state() == "testing"
    story.after(5).orders_end("run_preflight")
    assert not story.open_actions("resume"), "a node with an active error must not come back"
    story.clear(pending)
    story.scheduler_answers("resume")
    assert story.node_state() == "probation"
    assert not story.state.incidents
    story.after(3601)
    assert story.node_state() == "healthy"


def test_the_same_input_twice_does_nothing_twice() -> None:
    story = Story()
    graceful_until_drained(story)
    actions, decisions = dict(story.actions), dict(story.decisions)
    for item in list(story.inputs):
        if item.at <= story.now - 1:
            story.submit(item)
    assert {a for a in story.actions if a not in actions} == set()
    assert story.decisions == decisions


def test_abort_quarantines_for_replacement() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.orders_end(ABORT)
    assert story.node_state() == "replacing"
    (incident,) = story.state.incidents.values()
    assert incident.state is IncidentState.WAITING
    story.after(30 * 86400)
    assert story.node_state() == "replacing", "no node comes back without proof"
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.node_state() == "probation", "the exit: a person gave it back"
    assert not story.state.incidents


@pytest.mark.parametrize("answer", [OrderState.FAILED, OrderState.REFUSED, OrderState.EXPIRED])
def test_a_graceful_way_out_that_fails_becomes_an_abort(answer: OrderState) -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.orders_end(GRACEFUL, answer, "a rank did not answer")
    assert len(story.open_actions(ABORT)) == 2


def test_a_graceful_way_out_that_takes_too_long_becomes_an_abort() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.after(181)
    assert len(story.open_actions(ABORT)) == 2
    assert not story.open_actions(GRACEFUL)


def test_a_worse_finding_overtakes_the_plan() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.finding("xid/79", Severity.FATAL)
    (incident,) = story.state.incidents.values()
    assert incident.rule == "gpu-lost"
    assert not story.open_actions(GRACEFUL)
    assert len(story.open_actions(ABORT)) == 2
    story.finding("row_remap/pending", Severity.ERROR)
    assert next(iter(story.state.incidents.values())).rule == "gpu-lost", "a lesser finding does not take it back"


def test_a_node_of_the_job_heard_of_late_is_told_too_while_there_is_time() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.job("j1", "n3")
    assert {a.node for a in story.open_actions(GRACEFUL)} == {"n1", "n2", "n3"}
    assert len({a.order.mailbox_id for a in story.open_actions(GRACEFUL) if a.order}) == 1


def test_the_next_attempt_of_a_job_is_left_alone() -> None:
    story = Story()
    story.job("j1", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.job("j1", "n2", "n3", attempt=2)  # relaunched, while n1's own answer is still on its way
    assert {a.node for a in story.actions.values() if a.verb == GRACEFUL} == {"n1", "n2"}


def test_without_a_trainer_there_is_nobody_to_tell() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"


def test_a_failed_preflight_ends_in_replacement() -> None:
    story = Story()
    graceful_until_drained(story)
    story.orders_end("reset_gpu")
    story.orders_end("run_preflight", OrderState.FAILED, "memory_pattern: 3 wrong words")
    assert story.node_state() == "replacing"


def test_a_node_never_drained_is_handed_to_a_person() -> None:
    story = Story()
    story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(86401)
    (incident,) = story.state.incidents.values()
    assert incident.state is IncidentState.WAITING
    assert "not finished within 1 d" in incident.outcome


def test_a_scheduler_that_is_away_is_asked_again_however_long_that_takes() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    for _ in range(3):
        story.scheduler_answers("cordon", ActionResult.FAILED)
        story.after(31)
    (action,) = story.open_actions("cordon")
    assert action.attempts == 3
    story.after(10 * 3600)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"


def test_info_findings_open_nothing_but_give_context() -> None:
    story = Story()
    info = story.finding("xid/63", Severity.INFO)
    assert not story.state.incidents
    story.finding("row_remap/pending", Severity.ERROR)
    (incident,) = story.state.incidents.values()
    assert incident.findings[0] == info.id


@pytest.mark.parametrize("severity", [Severity.UNCLASSIFIED, Severity.WARNING])
def test_unknown_and_mild_findings_are_kept_in_sight_and_close_when_they_clear(severity: Severity) -> None:
    story = Story()
    finding = story.finding("xid/4711", severity)
    (incident,) = story.state.incidents.values()
    assert incident.answer is Answer.ACT
    assert not {a.verb for a in story.actions.values()} - TOLD_AT_ONCE
    assert story.node_state() == "healthy"
    story.clear(finding)
    assert not story.state.incidents


def test_recommend_mode_decides_and_touches_nothing() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    story.job("j1", "n1")
    story.finding("xid/79", Severity.FATAL)
    assert [d.answer for d in story.decisions.values()] == [Answer.RECOMMEND]
    story.after(3600)
    assert not story.actions
    assert len(story.decisions) == 1


def test_what_was_only_recommended_is_done_once_people_say_act() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    story.finding("xid/79", Severity.FATAL)
    story.rules = settings()
    story.after(1)
    assert [d.answer for d in story.decisions.values()] == [Answer.RECOMMEND, Answer.ACT]
    assert story.open_actions("cordon")


def test_the_next_drain_does_not_believe_what_the_scheduler_said_before_the_return() -> None:
    story = Story()
    finding = graceful_until_drained(story)
    story.orders_end("reset_gpu")
    story.clear(finding)
    story.orders_end("run_preflight")
    story.scheduler_answers("resume")
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.orders_end(GRACEFUL)
    assert story.node_state() == "draining", "nobody has said that its new work has left"


def test_the_budget_holds_a_node_back_and_lets_it_go_when_there_is_room() -> None:
    story = Story(settings(budget=level_only_budget(1)))
    story.finding("xid/79", Severity.FATAL, node="n1")
    story.finding("xid/79", Severity.FATAL, node="n2")
    assert not story.state.nodes["n2"].held
    held_back = [d for d in story.decisions.values() if d.answer is Answer.BLOCKED]
    assert "1 of at most 1 node isolated (n1)" in held_back[0].reason
    story.after(60).after(60)
    assert len([d for d in story.decisions.values() if d.answer is Answer.BLOCKED]) == 1, (
        "the same answer is written once"
    )
    story.scheduler_answers("cordon", node="n1")
    story.now += 1
    story.hold("n1", schedulable=True, owner=HoldOwner.NOBODY)
    story.after(1)
    assert story.state.nodes["n2"].held


def test_the_rate_is_bounded_even_when_nodes_come_back_at_once() -> None:
    story = Story(settings(budget=replace(level_only_budget(9), isolations_per_hour_max=2)), nodes=5)
    for node in ("n1", "n2", "n3"):
        story.finding("xid/79", Severity.FATAL, node=node)
    assert [story.state.nodes[n].held for n in ("n1", "n2", "n3")] == [True, True, False]
    story.after(3601)
    assert story.state.nodes["n3"].held

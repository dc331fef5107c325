"""Whose hold stands on a node, and whether ours really does: what a faulty node could slip back through."""

from __future__ import annotations

from pathlib import Path

import pytest

from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import Action, ActionState, IncidentState, NodeRecord
from remediator.model.pipeline_inputs import ActionEnded, HoldsObserved
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Finding, Severity
from vocabulary.order import OrderKind, OrderState

CHANGES = {"reset_gpu", "reboot", "run_preflight", "resume", "evict"}
DRAIN_ONLY = "[drain, preflight, return_to_service]"
_ORDERS = {"preflight": "run_preflight"}


def one_rule(tmp_path: Path, steps: str) -> Story:
    path = tmp_path / "p.yaml"
    path.write_text(f"playbook: 1\nrules:\n  - {{name: r, why: x, steps: {steps}}}\n")
    return Story(settings(policy=load_policy([path]), budget=level_only_budget(1)))


def changing(story: Story) -> list[Action]:
    return [a for a in story.state.actions.values() if a.verb in CHANGES and not a.state.final]


def free(story: Story, node: str = "n1") -> None:
    story.hold(node, schedulable=True, owner=HoldOwner.NOBODY)


def about_to_return(story: Story) -> Finding:
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    assert story.open_actions("resume")
    return finding


def test_a_hold_that_an_operator_took_over_confirms_nothing_of_the_next() -> None:
    story = Story()
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(5).hold(owner=HoldOwner.OPERATOR)
    story.after(5)
    free(story)
    assert story.node_state() == "probation"
    story.after(5).finding("xid/79", Severity.FATAL)
    story.after(1)
    free(story)  # the cordon is on its way, the scheduler does not show it yet
    assert story.state.nodes["n1"].held
    assert story.node_state() == "draining"


def test_a_cordon_that_was_refused_confirms_nothing_of_the_next() -> None:
    story = Story()
    story.finding("fan/slow", Severity.ERROR)
    story.hold()
    story.scheduler_answers("cordon", ActionResult.REFUSED)
    assert story.node_state() == "operator-held"
    assert story.state.nodes["n1"].hold_confirmed_at is None


@pytest.mark.parametrize("owner", [HoldOwner.OPERATOR, HoldOwner.SCHEDULER])
def test_anothers_hold_does_not_confirm_ours(owner: HoldOwner) -> None:
    story = Story()
    story.finding("fan/slow", Severity.ERROR)
    story.after(1).hold(owner=owner)
    assert story.state.nodes["n1"].held, "our cordon is under way; its answer says whose the node is"
    story.after(1)
    free(story)
    assert story.state.nodes["n1"].held
    story.scheduler_answers("cordon")
    story.after(1)
    free(story)
    assert story.node_state() == "probation", "now it really was lifted"


def test_our_resume_that_a_graver_fact_overtook_is_no_operators() -> None:
    story = Story()
    about_to_return(story)
    story.after(1).finding("xid/79", Severity.FATAL)
    assert not story.open_actions("resume")
    story.after(1)
    free(story)  # the resume was under way already
    assert story.state.nodes["n1"].held
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"


def test_our_resume_that_was_too_late_is_no_operators_and_the_hold_is_asked_for_again() -> None:
    story = Story()
    about_to_return(story)
    story.after(301)
    assert story.node_state() == "replacing"
    (again,) = story.open_actions("cordon")
    story.after(1)
    free(story)
    assert story.state.nodes["n1"].held
    story.scheduler_answers("cordon")
    assert not story.open_actions("cordon")
    story.after(10)
    assert not story.open_actions("cordon"), "it holds, as the scheduler has said"
    free(story)
    assert story.node_state() == "probation"
    assert again.decision in story.decisions


def test_a_hold_the_scheduler_forgot_with_its_node_is_asked_for_again() -> None:
    story = Story()
    story.finding("xid/79", Severity.FATAL)
    story.scheduler_answers("cordon")
    assert story.node_state() == "replacing"
    gone = SchedulerNodeState("n1", None, reason="no such node", known=False)
    story.after(60).submit(HoldsObserved(at=story.now, holds=(gone,)))
    assert not story.open_actions("cordon"), "as long as it is not there"
    story.after(60)
    free(story)
    assert story.node_state() == "replacing", "nobody has lifted anything: the node was made anew, without our hold"
    assert story.open_actions("cordon")


@pytest.mark.parametrize("repair", ["reset_gpu", "reboot", "preflight"])
def test_what_would_change_a_node_is_withdrawn_when_an_operator_takes_it(tmp_path: Path, repair: str) -> None:
    branch = "on_failure: {reboot: , on_failure: replace}"
    story = one_rule(
        tmp_path, f"[drain, {{{repair}: {'gate' * (repair == 'preflight')}, {branch}}}, preflight, replace]"
    )
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    assert [a.verb for a in changing(story)] == [_ORDERS.get(repair, repair)]
    story.after(1).hold(owner=HoldOwner.OPERATOR, drained=True)
    assert story.node_state() == "operator-held"
    assert not changing(story)
    story.after(600)
    assert not changing(story)


def test_orders_to_the_ranks_outlive_the_takeover() -> None:
    story = Story()
    story.job("j", "n1", "n2")
    story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(owner=HoldOwner.OPERATOR)
    assert {a.node for a in story.open_actions(OrderKind.CHECKPOINT_THEN_EJECT.value)} == {"n1", "n2"}


def test_a_drain_without_a_cordon_before_it_hears_a_refusal(tmp_path: Path) -> None:
    story = one_rule(tmp_path, DRAIN_ONLY)
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon", ActionResult.REFUSED)
    assert story.node_state() == "operator-held"
    assert not story.state.nodes["n1"].held
    assert story.state.incident_of("n1").state is IncidentState.WAITING  # type: ignore[union-attr]  # it is there


def test_a_drain_without_a_cordon_before_it_knows_when_it_was_lifted(tmp_path: Path) -> None:
    story = one_rule(tmp_path, DRAIN_ONLY)
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(30).after(30)
    story.now += 1
    free(story)
    assert story.node_state() == "probation"


@pytest.mark.parametrize("steps", [DRAIN_ONLY, "[cordon, {notify_trainer: abort}, replace]"])
def test_a_node_the_scheduler_does_not_know_is_nobodys_and_takes_no_place(tmp_path: Path, steps: str) -> None:
    story = one_rule(tmp_path, steps)
    story.finding("xid/79", Severity.FATAL)
    (action,) = story.open_actions("cordon")
    why = "Slurm knows no node n1; it must be named as in slurm.conf (NodeName)"
    story.submit(ActionEnded(at=story.now, action=action.id, outcome=ActionOutcome(ActionResult.UNKNOWN, why)))
    assert story.actions[action.id].state is ActionState.FAILED
    assert story.node_state() == "suspect"
    assert not story.state.held
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.state is IncidentState.WAITING
    assert why in incident.outcome
    assert [why in str(a.data["how"]) for a in story.actions.values() if a.verb == "alert" and "waits" in a.id] == [
        True
    ]
    story.after(3600)
    assert not story.open_actions("cordon")
    story.finding("xid/79", Severity.FATAL, node="n2")
    assert story.state.nodes["n2"].held, "the budget is free"


def test_a_retired_node_is_not_taken_for_an_operators() -> None:
    story = Story()
    story.state.put_node(NodeRecord(node="n1", state=NodeState.RETIRED))
    story.hold(owner=HoldOwner.OPERATOR)
    assert story.node_state() == "retired"
    assert "bug" not in story.kinds()


def test_a_late_answer_to_a_withdrawn_order_changes_nothing() -> None:
    story = Story()
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    (action,) = story.open_actions("reset_gpu")
    story.after(1).hold(owner=HoldOwner.OPERATOR, drained=True)
    before = dict(story.state.actions)
    story.orders_end("reset_gpu", OrderState.SUCCEEDED)
    assert story.state.actions == before
    assert story.actions[action.id].state is ActionState.CANCELLED

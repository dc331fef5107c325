"""Nodes that came back: which of them failed again, counted only once everybody had the time to."""

from __future__ import annotations

from remediator.decisions.node_lifecycle import transition_node
from remediator.decisions.return_outcomes import KEPT_MAX, WINDOWS, count_repeat_failures, record_node_return
from remediator.model.journal_records import NodeRecord
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

DAY_S = 86_400.0


def repaired(story: Story, node: str) -> None:
    finding = story.finding("fan/slow", Severity.ERROR, node=node)
    story.scheduler_answers("cordon", node=node)
    story.after(1).hold(node, drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    story.scheduler_answers("resume", node=node)
    assert story.node_state(node) == "probation"


def share(story: Story, window: str) -> tuple[int, int]:
    return count_repeat_failures(story.state.nodes.values(), WINDOWS[window], story.now)


def test_a_return_counts_once_its_window_is_over() -> None:
    story = Story()
    for node in ("n1", "n2"):
        repaired(story, node)
    story.after(3600)
    story.finding("fan/slow", Severity.ERROR, node="n1")
    assert share(story, "1d") == (0, 0)
    story.after(DAY_S)
    assert share(story, "1d") == (1, 2)
    assert share(story, "28d") == (0, 0)
    story.after(28 * DAY_S)
    assert share(story, "28d") == (1, 2)
    story.after(56 * DAY_S)
    assert share(story, "28d") == (0, 0)


def test_a_drill_counts_against_nobody() -> None:
    story = Story()
    repaired(story, "n1")
    story.finding("fan/slow", Severity.ERROR, injected=True)
    assert story.state.nodes["n1"].returns[-1].failed_at is None


def test_what_is_kept_is_bounded() -> None:
    node = NodeRecord(node="n1")
    for at in range(100):
        node = record_node_return(node, float(at))
    assert len(node.returns) == KEPT_MAX


def test_a_scheduler_that_is_quicker_than_our_own_outcome_makes_no_node_unknown() -> None:
    story = Story(nodes=1)
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    story.scheduler_answers("resume")
    story.after(3600)
    assert story.node_state() == "healthy"
    assert story.state.index.free == {"n1"}


def test_an_incident_on_probation_begins_the_trial_anew() -> None:
    story = Story()
    repaired(story, "n1")
    story.after(1800)
    mild = story.finding("throttle/hw_thermal", Severity.WARNING)
    story.after(1000).clear(mild)
    story.after(700)
    assert not story.state.incidents
    story.after(900)
    assert story.node_state() == "probation", "more than an hour after its return, less than one after its last trouble"
    assert "on probation again after inc-" in story.state.nodes["n1"].cause
    story.after(3600)
    assert story.node_state() == "healthy"


def test_suspect_on_probation_is_still_on_probation_when_nothing_comes_of_it() -> None:
    story = Story(settings(mode=Mode.RECOMMEND))
    story.state.put_node(transition_node(story.state.nodes["n1"], NodeState.OPERATOR_HELD, story.now, "ann"))
    story.hold(schedulable=True, owner=HoldOwner.NOBODY)
    assert story.node_state() == "probation"
    finding = story.finding("xid/79", Severity.FATAL)
    assert story.node_state() == "suspect"
    story.clear(finding)
    assert story.node_state() == "probation"
    story.after(3601)
    assert story.node_state() == "healthy"
    assert not story.state.nodes["n1"].on_trial
    finding = story.finding("xid/79", Severity.FATAL)
    story.clear(finding)
    assert story.node_state() == "healthy"

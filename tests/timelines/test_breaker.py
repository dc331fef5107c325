"""The breaker: it opens by level and by failures, lets everything but isolations go on, outlives a restart, and people close it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from remediator.decisions.circuit_breaker import breaker_trip_level
from remediator.decisions.isolation_budget import IsolationBudget, level_only_budget
from remediator.model.journal_records import BREAKER, Answer, IncidentState
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import ActionEnded, BreakerReset, TopologyObserved
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner
from remediator.state.cluster_state import ClusterState
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.order import OrderState


def story_with(**limits: Any) -> Story:
    return Story(settings(budget=replace(level_only_budget(9), **limits)), nodes=8)


def is_open(story: Story) -> bool:
    return story.state.incident_of(BREAKER) is not None


def tripped_by_level() -> Story:
    story = story_with(breaker_nodes_min=3)
    for n in (1, 2, 3):
        assert not is_open(story)
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
        story.scheduler_answers("cordon", node=f"n{n}")
    return story


def test_five_in_a_hundred_isolated_nodes_open_it_and_never_less_than_three() -> None:
    assert [breaker_trip_level(IsolationBudget(), n) for n in (4, 60, 61, 1000)] == [3, 3, 4, 50]


def test_it_opens_by_level_is_told_and_stops_what_would_isolate() -> None:
    story = tripped_by_level()
    assert is_open(story)
    assert "breaker_opened" in story.kinds()
    told = [a for a in story.actions.values() if a.node == BREAKER]
    assert [(a.verb, a.decision in story.decisions) for a in told] == [("alert", True)]
    story.finding("xid/79", Severity.FATAL, node="n4")
    assert not story.state.nodes["n4"].held
    last = list(story.decisions.values())[-1]
    assert last.answer is Answer.BLOCKED
    assert any(g.startswith("refused breaker: open") for g in last.guards)


def test_it_opens_between_the_decision_and_the_step_too() -> None:
    story = story_with(breaker_nodes_min=1)
    for n in (1, 2):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    assert sorted(story.state.held) == ["n1"]


def test_whoever_is_out_comes_back_while_it_is_open() -> None:
    story = story_with(breaker_nodes_min=2)
    findings = [story.finding("fan/slow", Severity.ERROR, node=n) for n in ("n1", "n2")]
    assert is_open(story)
    for node in ("n1", "n2"):
        story.scheduler_answers("cordon", node=node)
        story.after(1).hold(node, drained=True)
    story.orders_end("run_preflight")
    for finding in findings:
        story.clear(finding)
    for node in ("n1", "n2"):
        story.scheduler_answers("resume", node=node)
    assert [story.node_state(n) for n in ("n1", "n2")] == ["probation", "probation"]
    assert is_open(story), "time and recovery close nothing"


def reset(story: Story, node: str, state: OrderState = OrderState.FAILED) -> None:
    """A reset and its second attempt, then a reboot that helps."""
    story.finding("xid/62", Severity.FATAL, node=node)
    story.scheduler_answers("cordon", node=node)
    story.after(1).hold(node, drained=True)
    story.orders_end("reset_gpu", state)
    story.after(31).orders_end("reset_gpu", state)
    story.orders_end("reboot")


def test_failures_in_a_row_open_it_and_one_success_begins_the_row_anew() -> None:
    story = story_with(breaker_failures=3)
    reset(story, "n1")
    reset(story, "n2")
    reset(story, "n3", OrderState.SUCCEEDED)
    reset(story, "n4")
    reset(story, "n5")
    assert not is_open(story)
    reset(story, "n6")
    assert is_open(story)
    incident = story.state.incident_of(BREAKER)
    assert incident is not None
    assert "reset_gpu failed for 3 incidents in a row (n4, n5, n6)" in incident.title


def test_one_bad_node_on_which_nothing_works_opens_nothing() -> None:
    story = story_with(breaker_failures=2)
    story.finding("xid/62", Severity.FATAL)
    story.scheduler_answers("cordon")
    story.after(1).hold(drained=True)
    story.orders_end("reset_gpu", OrderState.FAILED)
    story.after(31).orders_end("reset_gpu", OrderState.FAILED)
    story.orders_end("reboot", OrderState.FAILED)
    assert {verb: len(of) for verb, of in story.state.streak.failed.items()} == {"reset_gpu": 1, "reboot": 1}
    assert not is_open(story)


def test_it_outlives_a_restart_and_so_does_the_row_of_failures() -> None:
    story = story_with(breaker_failures=3)
    for node in ("n1", "n2"):
        reset(story, node)
    state = story.state
    story.state = ClusterState.restored(
        state.nodes.values(),
        state.findings.values(),
        state.incidents.values(),
        state.actions.values(),
        story.occurrences,
    )
    reset(story, "n3")
    assert is_open(story)
    state = story.state
    story.state = ClusterState.restored(
        state.nodes.values(),
        state.findings.values(),
        state.incidents.values(),
        state.actions.values(),
        story.occurrences,
    )
    story.finding("xid/79", Severity.FATAL, node="n7")
    assert not story.state.nodes["n7"].held


def test_only_a_person_closes_it_and_then_what_was_held_back_goes_on() -> None:
    story = tripped_by_level()
    story.finding("xid/79", Severity.FATAL, node="n4")
    story.after(90_000)
    assert is_open(story)
    story.submit(BreakerReset(at=story.now, actor="ann", text="PDU replaced"))
    assert [e.actor for e in story.audit if e.kind == "breaker_reset"] == ["ann"]
    assert story.state.nodes["n4"].held
    assert is_open(story), "and one more isolation above the level opens it again"


def test_a_reset_of_a_closed_one_says_nothing() -> None:
    story = story_with()
    story.submit(BreakerReset(at=story.now, actor="ann"))
    assert "breaker_reset" not in story.kinds()


def test_its_incident_settles_nothing_of_the_nodes() -> None:
    story = tripped_by_level()
    assert story.state.incident_of(BREAKER).findings  # type: ignore[union-attr]  # it is there
    story.submit(BreakerReset(at=story.now, actor="ann"))
    assert not story.state.settled
    closed = [i for i in story.incidents.values() if i.node == BREAKER and i.state is IncidentState.CLOSED]
    assert [i.findings for i in closed] == [()]


def test_outcomes_of_late_actions_after_a_reset_do_no_harm() -> None:
    story = story_with(breaker_failures=1)
    reset(story, "n1")
    failed = [a for a in story.actions.values() if a.verb == "reset_gpu"]
    story.submit(BreakerReset(at=story.now, actor="ann"))
    for action in failed:
        story.submit(ActionEnded(at=story.now, action=action.id, outcome=ActionOutcome(ActionResult.FAILED, "late")))
    story.after(60)
    story.hold("n1", schedulable=True, owner=HoldOwner.NOBODY)
    assert not is_open(story)


def test_it_is_reached_with_what_is_shipped_when_more_is_wanted_out_than_the_level_lets_go() -> None:
    story = Story(settings(budget=IsolationBudget()), nodes=100)
    for n in range(1, 7):
        assert not is_open(story)
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    assert sorted(story.state.held) == ["n1"], "the rate held the others back"
    incident = story.state.incident_of(BREAKER)
    assert incident is not None
    assert "1 of 100 nodes are isolated and 5 more need isolation; the breaker opens above 5" in incident.title
    story.after(90_000)
    assert sorted(story.state.held) == ["n1"]


def test_drills_operators_and_what_a_shared_cause_explains_do_not_open_it() -> None:
    story = Story(settings(budget=IsolationBudget()), nodes=100)
    rack = {f"n{n}": NodeLocation(rack="r1") for n in range(1, 9)}
    story.submit(TopologyObserved(at=story.now, source="file", places=rack))
    for n in range(1, 9):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    for n in range(20, 28):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", injected=True)
    story.finding("xid/79", Severity.FATAL, node="n40")
    story.hold("n40", owner=HoldOwner.OPERATOR)
    for n in range(50, 53):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    assert [i.node for i in story.state.wide()] == ["rack:r1"]

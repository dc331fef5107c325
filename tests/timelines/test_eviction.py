"""Asking work to leave a drained node: planned once, only where the scheduler's backend says so, and never a second cordon."""

from __future__ import annotations

from pathlib import Path

from remediator.model.pipeline_inputs import HoldsObserved
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.playbook.playbook_loader import load_policy
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity


def sees(story: Story, *, evictable: bool, drained: bool = False) -> None:
    hold = SchedulerNodeState(
        "n1", False, drained=drained, owner=HoldOwner.US, jobs=() if drained else ("j",), evictable=evictable
    )
    story.submit(HoldsObserved(at=story.now, holds=(hold,)))


def draining() -> Story:
    story = Story()
    story.finding("row_remap/pending", Severity.ERROR)
    story.scheduler_answers("cordon")
    return story


def test_work_is_left_to_end_by_itself_unless_the_backend_says_otherwise() -> None:
    story = draining()
    sees(story.after(60), evictable=False)
    assert not story.open_actions("evict")


def test_work_is_asked_to_leave_once_and_the_drain_goes_on() -> None:
    story = draining()
    sees(story.after(60), evictable=True)
    (asked,) = story.open_actions("evict")
    sees(story.after(5), evictable=True)
    story.scheduler_answers("evict")
    sees(story.after(5), evictable=True)
    assert [action.id for action in story.actions.values() if action.verb == "evict"] == [asked.id]
    assert len([action for action in story.actions.values() if action.verb == "cordon"]) == 1
    sees(story.after(5), evictable=False, drained=True)
    assert story.node_state() in {"quarantined", "resetting", "testing"}


def test_work_that_may_not_be_evicted_becomes_a_persons() -> None:
    story = draining()
    sees(story.after(60), evictable=True)
    for _ in range(400):
        story.scheduler_answers("evict", ActionResult.FAILED)
        story.after(600)
    assert story.node_state() not in {"resetting", "testing", "healthy"}
    assert not story.open_actions("evict")
    assert any(action.verb == "alert" for action in story.actions.values())


def test_an_eviction_that_is_refused_does_not_hand_the_node_over() -> None:
    story = draining()
    sees(story.after(60), evictable=True)
    story.scheduler_answers("evict", ActionResult.REFUSED)
    story.after(5)
    assert story.state.nodes["n1"].held
    assert story.node_state() == "draining"


def test_a_drain_that_cordoned_by_itself_asks_as_well(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        """
playbook: 1
rules:
  - {name: drains, why: it must, match: {findings: [fan/*]}, steps: [drain, {preflight: gate}, return_to_service]}
  - {name: rest, why: everything else, steps: [alert]}
"""
    )
    story = Story(settings(policy=load_policy([tmp_path / "p.yaml"])))
    story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    sees(story.after(60), evictable=True)
    sees(story.after(5), evictable=True)
    assert len(story.open_actions("evict")) == 1
    story.scheduler_answers("evict")
    sees(story.after(5), evictable=False, drained=True)
    assert story.node_state() == "testing"

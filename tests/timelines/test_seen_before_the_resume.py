"""The scheduler was asked before our resume, and its answer is taken in after it."""

from __future__ import annotations

import pytest

from remediator.model.pipeline_inputs import HoldsObserved
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from tests.timelines.test_crash_points import whole_story
from tests.timelines.timeline import Story


def resumed() -> tuple[Story, float]:
    """A story in which a node was just brought back, and when that was."""
    story = whole_story()
    assert story.node_state() == "probation"
    return story, story.state.nodes["n1"].returns[-1].at


@pytest.mark.parametrize("before_s", [0.1, 1.0, 10.0])
def test_a_hold_that_was_seen_before_our_resume_ended_is_not_taken_for_one_that_stands(before_s: float) -> None:
    story, at = resumed()

    seen = SchedulerNodeState("n1", schedulable=False, drained=True, owner=HoldOwner.US)
    story.submit(HoldsObserved(at=at - before_s, holds=(seen,)))

    assert story.node_state() == "probation"
    assert not story.state.held


def test_one_that_is_still_there_after_a_minute_is() -> None:
    story, _ = resumed()

    story.after(61).hold(drained=True)

    assert story.node_state() == "quarantined"

"""How many nodes a job may lose: whoever keeps work off a node, the job that is told to go on without it has lost it."""

from __future__ import annotations

import pytest

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.scheduler_hold import HoldOwner
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

HOUR_S = 3600.0
NODES = [f"n{n}" for n in range(1, 9)]


def aborts(story: Story) -> int:
    return len({a.order.joint for a in story.actions.values() if a.verb == "abort" and a.order is not None})


@pytest.mark.parametrize("theirs", [NODES, []], ids=["held by an operator", "in service"])
def test_a_job_loses_no_more_nodes_in_a_day_if_an_operator_holds_them(theirs: list[str]) -> None:
    story = Story(settings(budget=IsolationBudget(isolated_max=20)), nodes=200)
    story.job("J", *NODES)
    for node in theirs:
        story.hold(node, owner=HoldOwner.OPERATOR)
    for node in NODES[:6]:
        story.after(3 * HOUR_S).finding("xid/79", Severity.FATAL, node=node)
        story.scheduler_answers("cordon", node=node)
        story.orders_end("abort")
    assert aborts(story) == 3
    held_back = story.state.incident_of("n4")
    assert held_back is not None
    assert any("refused job: " in guard for guard in story.decisions[held_back.decision].guards)
    story.after(24 * HOUR_S)
    assert aborts(story) > 3, "a day later it may lose others"

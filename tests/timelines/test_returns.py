"""Nodes that came back: which of them failed again, counted only once everybody had the time to."""

from __future__ import annotations

from remediator.decide.returns import KEPT_MAX, WINDOWS, refailed, returned
from remediator.model.records import NodeRecord
from tests.timelines.story import Story
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
    return refailed(story.state.nodes.values(), WINDOWS[window], story.now)


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
        node = returned(node, float(at))
    assert len(node.returns) == KEPT_MAX

"""A changed placement reviews what depends on it; that decisions are those of reviewing all is in test_resting_incidents."""

from __future__ import annotations

from typing import Any

import pytest

import tests.timelines.timeline as stories
from remediator import pipeline
from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, PlacementChanged
from remediator.state.cluster_state import ClusterState
from tests.timelines import test_resting_incidents
from tests.timelines.test_invariants import NODES
from tests.timelines.test_resting_incidents import Compared
from vocabulary.finding import Severity

readers, no_review_anyway = test_resting_incidents.readers, test_resting_incidents.no_review_anyway


def reviewed(story: Compared, item: AnyInput, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes whose incidents an input reviews."""
    seen: list[str] = []
    review = pipeline.review_incident

    def noted(state: ClusterState, incident_id: str, *rest: Any, **more: Any) -> None:
        if state is story.state:
            seen.append(state.incidents[incident_id].node)
        review(state, incident_id, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "review_incident", noted)
        story.submit(item)
    return seen


def test_a_placement_reviews_the_nodes_own_incident_and_those_that_order_its_job(
    readers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.job("a", "n1", "n2")
    story.job("b", "n4", "n5")
    story.finding("xid/31", Severity.FATAL, node="n1")  # recorded, and waits for other nodes
    story.finding("fan/x", Severity.INFO, node="n3")
    story.finding("xid/79", Severity.ERROR, node="n2")  # aborts the job
    story.after(60.0)
    assert {order.job for action in story.actions.values() if (order := action.order) is not None} == {"a"}
    story.job("b", "n6")  # a node was isolated since they were decided, and they are decided again once
    elsewhere = PlacementChanged(at=story.now, node="n4", jobs=(JobRef("c", 1),))
    assert reviewed(story, elsewhere, monkeypatch) == []
    joins = PlacementChanged(at=story.now, node="n5", jobs=(JobRef("a", 1),))
    assert reviewed(story, joins, monkeypatch) == ["n2"]
    story.after(1.0)
    story.job("c", "n6")
    own = PlacementChanged(at=story.now, node="n1", jobs=())
    assert reviewed(story, own, monkeypatch) == ["n1"]


def rules_of(story: Compared, node: str) -> list[str]:
    return [decision.rule for decision in story.decisions.values() if decision.node == node]


def watched(readers: Any) -> Compared:
    """A plan that runs is not decided again by the clock. A placement elsewhere has found its decision unchanged."""
    story = Compared(stories.settings(policy=readers, budget=level_only_budget(9)), NODES)
    story.finding("xid/31", Severity.INFO, node="n1")
    story.finding("net/flap", Severity.INFO, node="n1")
    story.after(1.0)
    story.job("b", "n4")
    assert rules_of(story, "n1") == ["flaps-among-others"]
    return story


def test_a_placement_decides_again_where_others_showed_the_same_since(readers: Any) -> None:
    story = watched(readers)
    for node in ("n2", "n3"):
        story.finding("xid/31", Severity.WARNING, node=node)
    story.after(1.0)
    assert rules_of(story, "n1") == ["flaps-among-others"]
    story.job("b", "n5")
    assert rules_of(story, "n1") == ["flaps-among-others", "everywhere"]


def test_a_placement_decides_again_where_time_has_passed(readers: Any) -> None:
    story = watched(readers)
    story.after(242.0)
    assert rules_of(story, "n1") == ["flaps-among-others"]
    story.job("b", "n5")
    assert rules_of(story, "n1") == ["flaps-among-others", "flaps-alone"]


# `CONTEXT_S`: what was seen five minutes ago still belongs to what begins now.
@pytest.mark.parametrize(("age_s", "joins"), [(299.0, True), (301.0, False)])
def test_a_fault_takes_in_what_its_node_showed_just_before(age_s: float, joins: bool) -> None:  # noqa: FBT001 - a table
    story = stories.Story()
    seen = story.finding("xid/13", Severity.INFO, seen_at=story.now - age_s)
    fault = story.finding("xid/79", Severity.FATAL, node="n1")
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert (seen.id in incident.findings, fault.id in incident.findings) == (joins, True)

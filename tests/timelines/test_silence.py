"""Who says nothing: one node is a finding, many at once are the network's fault or ours, and nobody is taken out for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.decisions.decision_settings import SilenceLimits
from remediator.decisions.isolation_budget import level_only_budget
from remediator.fleet.report_registry import ReportRegistry
from remediator.incidents.silent_nodes import reported_silent_nodes
from remediator.model.node_location import NodeLocation, merge_locations
from remediator.model.pipeline_inputs import FindingsReported, SilenceObserved, TopologyObserved
from remediator.model.scheduler_hold import HoldOwner
from remediator.monitoring.fleet_observer import find_silent_nodes
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Report

REPORT = Report(
    node="n1", boot_id="b", agent="a", seq=1, sent_at=1000.0, ttl_s=30.0, health=Health.HEALTHY, version=1
)  # fmt: skip


def story_with(nodes: int = 20, **limits: Any) -> Story:
    return Story(settings(budget=level_only_budget(9), silence=SilenceLimits(**limits)), nodes=nodes)


def silent(story: Story, *numbers: int) -> None:
    last = {f"n{n}": story.now - 400.0 for n in numbers}
    story.submit(SilenceObserved(at=story.now, silent=last))


def said_of(story: Story) -> list[str]:
    return sorted(f.node for f in story.state.findings.values() if f.kind == "node/silent" and f.active)


def test_a_silent_node_is_told_once_and_taken_from_nobody() -> None:
    story = story_with()
    story.job("train", "n1", "n2")
    silent(story, 1)
    silent(story, 1, 2)
    assert said_of(story) == ["n1", "n2"]
    story.after(86_400)
    assert not story.state.held
    assert {d.rule for d in story.decisions.values()} == {"node-silent"}
    assert not story.open_actions("checkpoint_then_eject")


def test_a_node_that_is_heard_again_is_no_longer_silent() -> None:
    story = story_with()
    silent(story, 1)
    story.now += 10
    silent(story)
    assert not said_of(story)
    assert not story.state.incidents


def test_many_at_once_are_one_incident_about_the_network_and_say_nothing_of_the_nodes() -> None:
    story = story_with(nodes=40, fraction=0.05, nodes_min=3)
    silent(story, 1, 2, 3)
    assert [i.node for i in story.state.wide()] == ["silence:cluster"]
    assert said_of(story) == []
    assert "3 of 40 nodes are silent at the same time (n1, n2, n3)" in story.state.wide()[0].title
    silent(story, 1, 2, 3, 4)
    assert story.state.wide()[0].members == ("n1", "n2", "n3", "n4")
    told = [a for a in story.actions.values() if a.verb == "alert"]
    assert len(told) == 1
    silent(story)
    assert not story.state.wide()
    assert not story.state.incidents


def test_what_was_said_before_the_silence_takes_nobody_out_while_all_are_silent() -> None:
    story = story_with(nodes_min=3)
    silent(story, 1, 2, 3)
    story.finding("xid/79", Severity.FATAL)
    assert not story.state.held
    silent(story, 1)
    story.after(1)
    assert story.state.held == {"n1"}, "one silent node may well be a broken one"


@pytest.mark.parametrize("kind", ["rack", "switch"])
def test_most_of_a_rack_or_a_switch_is_the_networks_fault_too(kind: str) -> None:
    story = story_with(nodes=200)
    places = {f"n{n}": NodeLocation(**{kind: "x"}) for n in range(1, 6)} | {
        f"n{n}": NodeLocation(**{kind: "y"}) for n in range(6, 20)
    }
    story.submit(TopologyObserved(at=story.now, source="file", places=places))
    silent(story, 1, 2, 3, 6, 7, 8)
    assert [i.node for i in story.state.wide()] == [f"silence:{kind}:x"]
    assert said_of(story) == ["n6", "n7", "n8"]
    silent(story, 1, 2)
    assert not story.state.wide()
    assert said_of(story) == ["n1", "n2"], "what remains silent is the nodes' own"


def stand(story: Story, **members: range) -> None:
    """``stand(story, rack_r1=range(1, 9))``"""
    places: dict[str, NodeLocation] = {}
    for place, numbers in members.items():
        kind, name = place.split("_")
        for n in numbers:
            places[f"n{n}"] = merge_locations(places.get(f"n{n}", NodeLocation()), NodeLocation(**{kind: name}))
    story.submit(TopologyObserved(at=story.now, source="file", places=places))


def about(story: Story) -> list[str]:
    return [i.node for i in story.state.wide()]


def test_a_rack_that_is_dark_is_the_racks_fault_although_it_is_much_of_the_cluster() -> None:
    story = story_with(nodes=40)
    stand(story, rack_r1=range(1, 9), switch_s1=range(1, 17))
    silent(story, *range(1, 9))
    assert about(story) == ["silence:rack:r1"]
    silent(story, *range(1, 9), 20)
    assert about(story) == ["silence:rack:r1"], "one more, elsewhere, is by itself"
    assert said_of(story) == ["n20"]
    silent(story, *range(1, 17))
    assert about(story) == ["silence:switch:s1"], "what explains more of it"
    silent(story, *range(1, 30))
    assert about(story) == ["silence:cluster"]
    closed = [i.outcome for i in story.incidents.values() if i.node == "silence:switch:s1"]
    assert closed == ["now part of silence:cluster"]


def test_a_rack_with_a_switch_of_its_own_is_one_matter() -> None:
    story = story_with(nodes=200)
    stand(story, rack_r1=range(1, 9), switch_s1=range(1, 9))
    silent(story, *range(1, 9))
    assert about(story) == ["silence:rack:r1"]


def test_who_was_silent_alone_and_then_with_others_is_no_matter_of_its_own_any_more() -> None:
    story = story_with(nodes=200)
    stand(story, rack_r1=range(1, 9))
    silent(story, 1, 2)
    silent(story, *range(1, 9))
    assert said_of(story) == []
    assert [i.node for i in story.state.incidents.values()] == ["silence:rack:r1"]
    story.now += 60
    silent(story, 1)
    assert said_of(story) == ["n1"]
    assert [i.node for i in story.state.incidents.values()] == ["n1"]
    outcomes = [i.outcome for i in story.incidents.values() if i.wide]
    assert outcomes == ["no longer silent as a group; nodes that still are get their own findings"]


def test_heard_again_is_only_said_of_what_is_heard() -> None:
    story = story_with(nodes=40)
    silent(story, 1, 2, 3)
    silent(story)
    assert [i.outcome for i in story.incidents.values()] == ["heard again"]


def test_nobody_wonders_at_the_silence_of_a_node_that_is_out() -> None:
    story = story_with()
    story.hold("n1", owner=HoldOwner.OPERATOR)
    silent(story, 1, 99)
    assert not said_of(story)


def test_who_is_silent_is_told_by_the_report_registry_and_by_the_beginning_of_the_term() -> None:
    report_registry = ReportRegistry()
    report_registry.take(REPORT, 1000.0)
    report_registry.take(replace(REPORT, node="n2", ttl_s=900.0), 1000.0)
    assert find_silent_nodes(["n1", "n2", "n3"], report_registry, 900.0, 1200.0, 300.0) == {}
    assert find_silent_nodes(["n1", "n2", "n3"], report_registry, 900.0, 1201.0, 300.0) == {"n3": 900.0}
    assert find_silent_nodes(["n1", "n2", "n3"], report_registry, 900.0, 1301.0, 300.0) == {"n1": 1000.0, "n3": 900.0}


def test_who_was_silent_before_the_term_is_silent_until_it_is_heard() -> None:
    story = story_with(nodes=40)
    silent(story, 9)
    known = reported_silent_nodes(story.state.findings.values(), story.state.incidents.values())
    assert known == {"n9": story.now - 400.0}
    silent(story, 1, 2, 3, 9)
    known = reported_silent_nodes(story.state.findings.values(), story.state.incidents.values())
    assert known == dict.fromkeys(["n1", "n2", "n3", "n9"], story.now)
    report_registry = ReportRegistry()
    assert find_silent_nodes(["n1", "n5"], report_registry, 900.0, 901.0, 300.0, known) == {"n1": story.now}
    report_registry.take(replace(REPORT, node="n1"), 901.0)
    assert find_silent_nodes(["n1", "n5"], report_registry, 900.0, 902.0, 300.0, known) == {}


def test_what_a_node_calls_silent_itself_is_no_silence() -> None:
    story = story_with(nodes=40)
    claimed = story.finding("node/silent", Severity.WARNING, component=Component(ComponentKind.HOST))
    assert reported_silent_nodes(story.state.findings.values(), story.state.incidents.values()) == {}
    silent(story)
    assert story.state.findings[claimed.id].active, "its own, and the centre's look does not end it"
    silent(story, 2)
    own = next(f for f in story.state.findings.values() if f.node == "n2")
    story.submit(
        FindingsReported(at=story.now, node="n2", boot_id="b", changes=(own.cleared(story.now, "me"),), active=())
    )
    assert story.kinds().count("finding_refused") == 1
    assert reported_silent_nodes(story.state.findings.values(), ()) == {"n2": story.now - 400.0}

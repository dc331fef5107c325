"""Who says nothing: one node is a finding, many at once are the network's fault or ours, and nobody is taken out for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.decide.budget import of_level_only
from remediator.decide.settings import Silence
from remediator.lookout import silent_nodes
from remediator.model.hold import Owner
from remediator.model.inputs import SilenceObserved, TopologyObserved
from remediator.model.places import Places
from remediator.roster import Roster
from tests.timelines.story import Story, settings
from vocabulary.finding import Severity
from vocabulary.health import Health
from vocabulary.wire import Report


def story_with(nodes: int = 20, **limits: Any) -> Story:
    return Story(settings(budget=of_level_only(9), silence=Silence(**limits)), nodes=nodes)


def silent(story: Story, *numbers: int) -> None:
    last = {f"n{n}": story.now - 400.0 for n in numbers}
    story.tell(SilenceObserved(at=story.now, silent=last))


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
    assert "3 of 40 nodes are silent at once (n1, n2, n3)" in story.state.wide()[0].title
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
    places = {f"n{n}": Places(**{kind: "x"}) for n in range(1, 6)} | {
        f"n{n}": Places(**{kind: "y"}) for n in range(6, 20)
    }
    story.tell(TopologyObserved(at=story.now, source="file", places=places))
    silent(story, 1, 2, 3, 6, 7, 8)
    assert [i.node for i in story.state.wide()] == [f"silence:{kind}:x"]
    assert said_of(story) == ["n6", "n7", "n8"]
    silent(story, 1, 2)
    assert not story.state.wide()
    assert said_of(story) == ["n1", "n2"], "what remains silent is the nodes' own"


def test_nobody_wonders_at_the_silence_of_a_node_that_is_out() -> None:
    story = story_with()
    story.hold("n1", owner=Owner.OPERATOR)
    silent(story, 1, 99)
    assert not said_of(story)


def test_who_is_silent_is_told_by_the_roster_and_by_the_beginning_of_the_term() -> None:
    roster = Roster()
    report = Report(
        node="n1", boot_id="b", agent="a", seq=1, sent_at=1000.0, ttl_s=30.0, health=Health.HEALTHY, version=1
    )  # fmt: skip
    roster.take(report, 1000.0)
    roster.take(replace(report, node="n2", ttl_s=900.0), 1000.0)
    assert silent_nodes(["n1", "n2", "n3"], roster, 900.0, 1200.0, 300.0) == {}
    assert silent_nodes(["n1", "n2", "n3"], roster, 900.0, 1201.0, 300.0) == {"n3": 900.0}
    assert silent_nodes(["n1", "n2", "n3"], roster, 900.0, 1301.0, 300.0) == {"n1": 1000.0, "n3": 900.0}

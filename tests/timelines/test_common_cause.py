"""Suspects that share a rack, a switch, an image, a driver or a job: one incident; at once nobody is isolated, slowly only few."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import Answer, Incident
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import IncidentCommand, IncidentCommandKind, InventoryChanged, TopologyObserved
from remediator.state.cluster_state import ClusterState
from tests.timelines.timeline import START, Story, settings
from vocabulary.finding import Severity


def story_at(places: dict[str, NodeLocation], nodes: int = 12, **limits: Any) -> Story:
    budget = replace(level_only_budget(nodes), **({"common_cause_nodes": 3, "isolation_gap_s": 600.0} | limits))
    story = Story(settings(budget=budget), nodes=nodes)
    story.submit(TopologyObserved(at=story.now, source="file", places=places))
    return story


def rack(*numbers: int, name: str = "r1") -> dict[str, NodeLocation]:
    return {f"n{n}": NodeLocation(rack=name) for n in numbers}


def lose(story: Story, *numbers: int) -> None:
    for n in numbers:
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")


def one_by_one(story: Story, *numbers: int, every_s: float = 601.0) -> None:
    for n in numbers:
        lose(story, n)
        story.after(every_s)


def wide(story: Story) -> list[Incident]:
    return story.state.wide()


def test_what_the_whole_fleet_runs_is_no_cause_of_what_chance_explains() -> None:
    """Every node tells its driver, and most clusters run one: three of very many fail within minutes now and then."""
    everywhere = {f"n{n}": NodeLocation(driver="550") for n in range(1, 41)}
    story = story_at(everywhere, nodes=40, common_cause_usual_h=10.0)  # as 26 000 nodes that fail every 6500 h
    lose(story, 1, 2, 3)
    assert wide(story) == []
    lose(story, 4, 5, 6, 7, 8, 9)
    (incident,) = wide(story)
    assert incident.node == "driver:550"


@pytest.mark.parametrize("kind", ["rack", "switch", "image", "driver"])
def test_what_three_suspects_share_is_the_incident_and_none_is_isolated_any_more(kind: str) -> None:
    story = story_at({f"n{n}": NodeLocation(**{kind: "x"}) for n in range(1, 6)})
    lose(story, 1, 2, 3, 4)
    (incident,) = wide(story)
    assert incident.node == f"{kind}:x"
    assert "3 of 5 nodes" in incident.title
    assert incident.members == ("n1", "n2", "n3", "n4"), "the fourth joins"
    assert sorted(story.state.held) == ["n1"], "who is out already stays out"
    story.after(3600)
    assert sorted(story.state.held) == ["n1"]
    refused = [g for d in story.decisions.values() if d.node == "n3" for g in d.guards if "common-cause" in g]
    assert refused, "with the reason"
    assert [a.verb for a in story.actions.values() if a.node == incident.node] == ["alert"], "people are told, once"


def test_three_nodes_of_one_job_are_the_jobs_until_somebody_has_looked() -> None:
    story = story_at({})
    story.job("train", *(f"n{n}" for n in range(1, 9)))
    lose(story, 1, 2, 3)
    assert [i.node for i in wide(story)] == ["job:train"]
    assert "3 of 8 nodes of job train" in wide(story)[0].title


def test_the_narrowest_place_that_all_share_is_the_likeliest_cause() -> None:
    places = {f"n{n}": NodeLocation(rack="r1" if n <= 4 else "r2", driver="570", switch="s1") for n in range(1, 13)}
    story = story_at(places)
    lose(story, 1, 2, 3)
    assert [i.node for i in wide(story)] == ["rack:r1"]
    assert wide(story)[0].title == "3 of 4 nodes in rack r1 failed within 1 s (n1, n2, n3)"
    assert "They also share switch s1, driver 570." in wide(story)[0].outcome


def test_a_place_that_more_of_them_share_is_likelier_than_a_narrow_one() -> None:
    places = {f"n{n}": NodeLocation(rack="r1" if n <= 3 else "r2", switch="s1") for n in range(1, 13)}
    story = story_at(places, common_cause_nodes=4)
    lose(story, 1, 2, 3, 4)
    assert [i.node for i in wide(story)] == ["switch:s1"]


def test_two_are_chance_and_so_are_three_in_an_hour_or_in_three_racks() -> None:
    story = story_at(rack(1, 2) | rack(3, name="r2"))
    lose(story, 1, 2, 3)
    assert not wide(story)
    slow = story_at(rack(1, 2, 3), common_cause_slow_s=0.0)
    one_by_one(slow, 1, 2, 3)
    assert not wide(slow)
    assert len(slow.state.held) == 3


@pytest.mark.parametrize("behind_s", [7 * 86_400.0, START])
def test_a_rack_whose_clocks_are_far_behind_is_a_cause_for_its_nodes_still_say_so(behind_s: float) -> None:
    story = story_at(rack(1, 2, 3), nodes=200)
    for n in (1, 2, 3):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", seen_at=story.now - behind_s)
    assert [(i.node, i.rule) for i in wide(story)] == [("rack:r1", "common-cause")]


def test_a_drill_hides_no_real_fault_and_is_no_reason_to_hold_one_back() -> None:
    story = story_at(rack(1, 2, 3, 4), isolation_gap_s=0.0)
    for n in (1, 2):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", injected=True)
    lose(story, 3)
    assert not wide(story)
    assert "n3" in story.state.held
    story.finding("xid/79", Severity.FATAL, node="n4", injected=True)
    assert [i.node for i in wide(story)] == ["rack:r1"], "a drill sees them all"


def test_what_a_drill_opened_holds_no_real_fault_back_and_makes_way_for_a_real_cause() -> None:
    story = story_at(rack(*range(1, 9)), isolation_gap_s=0.0)
    story.rules = replace(story.rules, budget=replace(story.rules.budget, isolation_gap_s=60.0))
    lose(story, 1)
    lose(story, 2)  # waits for its turn
    for n in (3, 4, 5):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", injected=True)
    (drill,) = wide(story)
    assert (drill.injected, "n2" in drill.members) == (True, False)
    story.after(61)
    assert sorted(story.state.held) == ["n1", "n2"]
    lose(story, 6)
    (real,) = wide(story)
    assert (real.node, real.injected, real.members) == ("rack:r1", False, ("n1", "n2", "n6"))
    assert story.incidents[drill.id].outcome == "new failures there are not drills"
    assert story.state.suspects.count("rack:r1", story.now - 600, drills=False) == 3, (
        "what is real is not forgotten with it"
    )


def test_people_end_it_and_then_each_node_is_answered_by_itself() -> None:
    story = story_at(rack(1, 2, 3))
    lose(story, 1, 2, 3)
    story.after(700)
    (incident,) = wide(story)
    story.submit(
        IncidentCommand(
            at=story.now, node=incident.node, incident=incident.id, word=IncidentCommandKind.RESOLVE, actor="ann"
        )
    )
    assert not wide(story)
    story.after(1)
    assert sorted(story.state.held) == ["n1", "n2"], "the budget still counts"
    story.after(601)
    assert sorted(story.state.held) == ["n1", "n2", "n3"]
    assert not wide(story), "it is not found once more"


def test_it_ends_when_nothing_is_left_of_it() -> None:
    story = story_at(rack(1, 2, 3), isolation_gap_s=1e9)
    story.state.isolated_at.append(story.now)  # nobody leaves
    findings = [story.finding("xid/79", Severity.FATAL, node=f"n{n}") for n in (1, 2, 3)]
    assert wide(story)
    for finding in findings:
        story.clear(finding)
    story.after(1)
    assert not wide(story)
    assert not story.state.incidents


def test_a_restart_forgets_neither_the_incident_nor_who_became_suspect() -> None:
    story = story_at(rack(1, 2, 3, 4))
    lose(story, 1, 2)
    restart(story)
    lose(story, 3)
    assert [i.members for i in wide(story)] == [("n1", "n2", "n3")]
    restart(story)
    lose(story, 4)
    assert [i.members for i in wide(story)] == [("n1", "n2", "n3", "n4")]


def restart(story: Story) -> None:
    was = story.state
    story.state = ClusterState.restored(
        was.nodes.values(), was.findings.values(), was.incidents.values(), was.actions.values(), story.occurrences
    )


def test_a_new_leader_keeps_a_node_in_its_rack_until_it_is_told_where_nodes_stand() -> None:
    story = story_at({"n1": NodeLocation(rack="r1", driver="570")})
    restart(story)
    story.submit(InventoryChanged(at=story.now, node="n1", products=(), driver="575"))
    assert story.state.nodes["n1"].places == NodeLocation(rack="r1", driver="575"), (
        "the node alone does not know its rack"
    )
    story.submit(TopologyObserved(at=story.now, source="file", places={"n1": NodeLocation(switch="s1")}))
    assert story.state.nodes["n1"].places == NodeLocation(switch="s1", driver="575")


def test_a_new_leader_that_cannot_read_the_file_keeps_what_it_said_whatever_the_scheduler_says() -> None:
    story = story_at({"n1": NodeLocation(rack="r1", switch="s1"), "n2": NodeLocation(rack="r1")})
    restart(story)
    story.submit(TopologyObserved(at=story.now, source="backend", places={"n1": NodeLocation(partitions=("train",))}))
    assert story.state.nodes["n1"].places == NodeLocation(rack="r1", switch="s1", partitions=("train",))
    assert story.state.index.members("rack:r1") == {"n1", "n2"}
    story.submit(TopologyObserved(at=story.now, source="file", places={}))
    assert story.state.nodes["n1"].places == NodeLocation(partitions=("train",))
    assert not story.state.index.members("rack:r1")


def test_a_switch_is_in_doubt_for_as_long_as_its_incident_is_open_a_driver_only_in_the_burst() -> None:
    for kind, expected in (("switch", 4), ("driver", 3)):
        story = story_at({f"n{n}": NodeLocation(**{kind: "x"}) for n in range(1, 5)}, common_cause_slow_s=0.0)
        lose(story, 1, 2, 3)
        story.after(7200)
        lose(story, 4)
        assert len(wide(story)[0].members) == expected


def test_the_held_decision_says_why() -> None:
    story = story_at(rack(1, 2, 3))
    lose(story, 1, 2, 3)
    last = list(story.decisions.values())[-1]
    assert last.answer is Answer.BLOCKED
    assert "all 3 nodes in rack r1 failed within 1 s (n1, n2, n3)" in last.reason


def test_what_comes_one_by_one_is_told_and_held_back_once_three_are_out() -> None:
    story = story_at(rack(*range(1, 8)))
    one_by_one(story, 1, 2)
    assert not wide(story)
    lose(story, 3)
    (incident,) = wide(story)
    assert (incident.node, incident.rule) == ("rack:r1", "common-cause"), "the third is out already"
    told = [a.data["how"] for a in story.actions.values() if a.node == "rack:r1" and a.verb == "alert"]
    assert "3 of 7 nodes in rack r1 failed within 21 min (n1, n2, n3). In 6 h, 0.006 are usual there" in str(told[0])
    assert "Its nodes are isolated within the budget until 3 of them are out of service" in str(told[0])
    assert "3 of these 3 nodes are out. No node of this group is isolated" in str(told[1])
    one_by_one(story, 4, 5, 6)
    assert sorted(story.state.held) == ["n1", "n2", "n3"]
    assert wide(story)[0].members == ("n1", "n2", "n3", "n4", "n5", "n6")


def test_as_long_as_few_are_out_the_budget_alone_decides_and_the_decision_names_the_cause() -> None:
    story = story_at(rack(*range(1, 8)), isolation_gap_s=3600.0)
    one_by_one(story, 1, 2, 3)
    assert [i.rule for i in wide(story)] == ["slow-cause"]
    assert len(story.state.held) == 1
    story.after(7200)
    said = [g for d in story.decisions.values() if d.node == "n3" for g in d.guards]
    assert any(g.startswith("passed slow-cause") for g in said)
    assert len(story.state.held) == 2


def test_a_burst_at_a_slow_cause_is_held_back_at_once() -> None:
    story = story_at({f"n{n}": NodeLocation(driver="x") for n in range(1, 8)}, isolation_gap_s=3600.0)
    one_by_one(story, 1, 2, 3)
    assert [i.rule for i in wide(story)] == ["slow-cause"]
    lose(story, 4, 5, 6)
    assert [(i.node, i.rule) for i in wide(story)] == [("driver:x", "common-cause")]
    story.after(7200)
    assert sorted(story.state.held) == ["n1"]


def test_what_is_reported_late_counts_when_it_happened() -> None:
    story = story_at(rack(1, 2, 3, 4))
    for n in (1, 2, 3):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", seen_at=story.now - 3600 * n)
    assert [i.node for i in wide(story)] == ["rack:r1"]


def test_what_the_whole_fleet_sees_is_no_fault_of_a_driver() -> None:
    places = {f"n{n}": NodeLocation(driver="x") for n in range(1, 601)}
    story = story_at(places, nodes=600)
    one_by_one(story, *range(1, 601, 60), every_s=7200.0)
    assert not wide(story), "ten in a day of six hundred nodes may be chance"


def test_an_open_cause_hides_no_other() -> None:
    places = {f"n{n}": NodeLocation(driver="x", rack=f"r{(n - 1) // 8}") for n in range(1, 401)}
    story = story_at(places, nodes=400)
    lose(story, 1, 9, 17)
    assert [i.node for i in wide(story)] == ["driver:x"]
    story.after(3600)
    lose(story, 81, 82, 83)
    by_name = {i.node: i.members for i in wide(story)}
    explained = {"rack:r10": ("n81", "n82", "n83"), "driver:x": ("n1", "n17", "n9")}
    assert by_name == explained, "who is explained better is no part of the other any more"


def test_a_wider_cause_takes_in_what_turns_out_to_be_part_of_it() -> None:
    places = {f"n{n}": NodeLocation(driver="new" if n <= 40 else "old", rack=f"r{(n - 1) // 8}") for n in range(1, 201)}
    story = story_at(places, nodes=200)
    for first in (1, 9, 17, 25):  # a rollout, rack by rack
        lose(story, first, first + 1, first + 2)
        story.after(3600)
    assert [i.node for i in wide(story)] == ["driver:new"]
    assert len(wide(story)[0].members) == 12
    outcomes = {i.node: i.outcome for i in story.incidents.values() if i.wide and i.closed_at}
    assert all(f"now part of {wide(story)[0].id}, driver:new" == outcome for outcome in outcomes.values())


def test_what_people_ended_is_not_counted_again() -> None:
    story = story_at(rack(*range(1, 8)), isolation_gap_s=1e9)
    lose(story, 1, 2, 3)
    (incident,) = wide(story)
    word = IncidentCommand(
        at=story.now, node=incident.node, incident=incident.id, word=IncidentCommandKind.RESOLVE, actor="ann"
    )
    story.submit(word)
    restart(story)
    lose(story, 4, 5)
    assert not wide(story)
    lose(story, 6)
    assert [i.members for i in wide(story)] == [("n4", "n5", "n6")]

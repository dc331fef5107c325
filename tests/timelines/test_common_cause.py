"""Three suspects that share a rack, a switch, an image, a driver or a job within ten minutes: one incident, nobody isolated."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.decide.budget import of_level_only
from remediator.model.inputs import IncidentWord, PersonSaid, TopologyObserved
from remediator.model.places import Places
from remediator.model.records import Answer, Incident
from remediator.state import ClusterState
from tests.timelines.story import Story, settings
from vocabulary.finding import Severity


def story_at(places: dict[str, Places], nodes: int = 12, **limits: Any) -> Story:
    budget = replace(of_level_only(nodes), **({"common_cause_nodes": 3, "isolation_gap_s": 600.0} | limits))
    story = Story(settings(budget=budget), nodes=nodes)
    story.tell(TopologyObserved(at=story.now, source="file", places=places))
    return story


def rack(*numbers: int, name: str = "r1") -> dict[str, Places]:
    return {f"n{n}": Places(rack=name) for n in numbers}


def lose(story: Story, *numbers: int) -> None:
    for n in numbers:
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")


def wide(story: Story) -> list[Incident]:
    return story.state.wide()


@pytest.mark.parametrize("kind", ["rack", "switch", "image", "driver"])
def test_what_three_suspects_share_is_the_incident_and_none_is_isolated_any_more(kind: str) -> None:
    story = story_at({f"n{n}": Places(**{kind: "x"}) for n in range(1, 6)})
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
    places = {f"n{n}": Places(rack="r1" if n <= 4 else "r2", driver="570", switch="s1") for n in range(1, 13)}
    story = story_at(places)
    lose(story, 1, 2, 3)
    assert [i.node for i in wide(story)] == ["rack:r1"]
    assert "they also share switch s1, driver 570" in wide(story)[0].title


def test_a_place_that_more_of_them_share_is_likelier_than_a_narrow_one() -> None:
    places = {f"n{n}": Places(rack="r1" if n <= 3 else "r2", switch="s1") for n in range(1, 13)}
    story = story_at(places, common_cause_nodes=4)
    lose(story, 1, 2, 3, 4)
    assert [i.node for i in wide(story)] == ["switch:s1"]


def test_two_are_chance_and_so_are_three_in_an_hour_or_in_three_racks() -> None:
    story = story_at(rack(1, 2) | rack(3, name="r2"))
    lose(story, 1, 2, 3)
    assert not wide(story)
    slow = story_at(rack(1, 2, 3))
    for n in (1, 2, 3):
        lose(slow, n)
        slow.after(601)
    assert not wide(slow)
    assert len(slow.state.held) == 3


def test_old_news_that_comes_late_is_not_at_once() -> None:
    story = story_at(rack(1, 2, 3))
    then = story.now - 7 * 86_400
    for n in (1, 2, 3):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", seen_at=then)
    assert not wide(story)


def test_a_drill_hides_no_real_fault_and_is_no_reason_to_hold_one_back() -> None:
    story = story_at(rack(1, 2, 3, 4), isolation_gap_s=0.0)
    for n in (1, 2):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}", injected=True)
    lose(story, 3)
    assert not wide(story)
    assert "n3" in story.state.held
    story.finding("xid/79", Severity.FATAL, node="n4", injected=True)
    assert [i.node for i in wide(story)] == ["rack:r1"], "a drill sees them all"


def test_people_end_it_and_then_each_node_is_answered_by_itself() -> None:
    story = story_at(rack(1, 2, 3))
    lose(story, 1, 2, 3)
    story.after(700)
    (incident,) = wide(story)
    story.tell(
        PersonSaid(at=story.now, node=incident.node, incident=incident.id, word=IncidentWord.RESOLVE, actor="ann")
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


def test_a_switch_is_in_doubt_for_as_long_as_its_incident_is_open_a_driver_only_in_the_burst() -> None:
    for kind, expected in (("switch", 4), ("driver", 3)):
        story = story_at({f"n{n}": Places(**{kind: "x"}) for n in range(1, 5)})
        lose(story, 1, 2, 3)
        story.after(7200)
        lose(story, 4)
        assert len(wide(story)[0].members) == expected


def test_the_held_decision_says_why() -> None:
    story = story_at(rack(1, 2, 3))
    lose(story, 1, 2, 3)
    last = list(story.decisions.values())[-1]
    assert last.answer is Answer.HOLD
    assert "3 of 3 nodes of rack r1 became suspect within 600 s (n1, n2, n3)" in last.reason

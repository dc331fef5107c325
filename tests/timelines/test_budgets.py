"""How many nodes may be out, and how fast they may go: each limit by itself, with its figures in the reason."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from remediator.decisions.isolation_budget import PASSABLE, IsolationBudget, level_only_budget, rate_max
from remediator.decisions.spare_nodes import find_nearest_spare
from remediator.model.journal_records import Answer
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import (
    FindingsReported,
    NodeCommand,
    NodeCommandKind,
    SilenceObserved,
    TopologyObserved,
)
from remediator.model.scheduler_hold import ActionResult, HoldOwner
from remediator.pipeline import RETRY_MAX_S, apply_input
from remediator.state.cluster_state import ISOLATION, ClusterState
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity


def story_with(nodes: int = 8, **limits: Any) -> Story:
    return Story(settings(budget=replace(level_only_budget(9), **limits)), nodes=nodes)


def stand(story: Story, places: dict[str, NodeLocation]) -> None:
    story.submit(TopologyObserved(at=story.now, source="file", places=places))


def held(story: Story) -> list[str]:
    return sorted(story.state.held)


def refusals(story: Story) -> list[str]:
    return [
        g for d in story.decisions.values() if d.answer is Answer.BLOCKED for g in d.guards if g.startswith("refused")
    ]


def lose(story: Story, *nodes: str) -> None:
    for node in nodes:
        story.finding("xid/79", Severity.FATAL, node=node)


def test_what_is_shipped_takes_one_node_and_then_waits() -> None:
    story = Story(settings(budget=IsolationBudget()), nodes=200)
    lose(story, "n1", "n2")
    assert held(story) == ["n1"]
    assert [g.split(":")[0] for g in refusals(story)] == ["refused rate", "refused gap"]
    story.after(3601)
    assert held(story) == ["n1", "n2"]


def test_retired_nodes_widen_no_limit() -> None:
    story = Story(settings(budget=IsolationBudget()), nodes=120)
    stand(story, {f"n{n}": NodeLocation(rack="r1", partitions=("train",)) for n in range(1, 121)})
    for n in range(41, 121):
        retired = NodeCommand(at=story.now, node=f"n{n}", word=NodeCommandKind.RETIRE, actor="ann", text="sold")
        apply_input(story.state, retired, story.rules)
    lose(story, "n1", "n2")
    assert held(story) == ["n1"]
    assert "refused level: 1 of at most 1 node isolated (n1)" in refusals(story)
    assert "refused partition: 1 of at most 1 node of partition train isolated" in refusals(story)
    story.submit(SilenceObserved(at=story.now, silent={f"n{n}": story.now - 400 for n in range(10, 30)}))
    assert [i.node for i in story.state.wide()] == ["silence:rack:r1"]
    assert "20 of 40 nodes of rack r1 are silent" in story.state.wide()[0].title
    taken_back = NodeCommand(at=story.now, node="n120", word=NodeCommandKind.UNRETIRE, actor="ann", text="")
    story.submit(taken_back)
    assert len(story.state.index.in_cluster) == len(story.state.index.members("rack:r1")) == 41


def test_some_time_lies_between_two_isolations() -> None:
    story = story_with(isolation_gap_s=600.0)
    lose(story, "n1", "n2")
    assert refusals(story) == ["refused gap: the last isolation was 0 s ago, at least 10 min required"]
    story.after(599)
    assert held(story) == ["n1"]
    story.after(1)
    assert held(story) == ["n1", "n2"]


def test_the_rate_is_a_share_of_the_fleet_too_but_at_least_one() -> None:
    budget = IsolationBudget()
    assert [rate_max(budget, n) for n in (1, 199, 400, 1000, 12_500)] == [1, 1, 2, 5, 6]


def test_one_rack_has_one_action_open_and_a_node_that_waits_for_a_part_blocks_no_neighbour() -> None:
    story = story_with(open_per_rack_max=1)
    stand(story, {f"n{i}": NodeLocation(rack=f"r{i % 2}") for i in range(1, 9)})
    story.finding("fan/slow", Severity.ERROR, node="n1")
    lose(story, "n3", "n2")
    assert held(story) == ["n1", "n2"], "n2 stands in another rack"
    assert refusals(story) == ["refused rack: 1 of at most 1 action open in rack r1 (n1)"]
    story.scheduler_answers("cordon", node="n1")
    story.scheduler_answers("cordon", node="n2")
    lose(story, "n4")
    assert held(story) == ["n1", "n2", "n4"], "n2 only waits for a part"


def test_one_switch_has_one_action_open() -> None:
    story = story_with(open_per_switch_max=1)
    stand(story, {f"n{i}": NodeLocation(switch="leaf1") for i in range(1, 3)})
    lose(story, "n1", "n2", "n3")
    assert held(story) == ["n1", "n3"]


def test_a_partition_has_a_level_of_its_own() -> None:
    story = Story(settings(budget=replace(level_only_budget(1), isolated_fraction_max=0.25)), nodes=16)
    stand(story, {f"n{i}": NodeLocation(partitions=("small",) if i <= 4 else ("big",)) for i in range(1, 17)})
    lose(story, "n1", "n2", "n5")
    assert held(story) == ["n1", "n5"]
    assert "refused partition: 1 of at most 1 node of partition small isolated" in refusals(story)


def test_a_partition_may_be_bounded_to_one_open_action() -> None:
    story = story_with(open_per_partition_max=1)
    stand(story, {f"n{i}": NodeLocation(partitions=("p",)) for i in range(1, 9)})
    lose(story, "n1", "n2")
    assert held(story) == ["n1"]


def test_a_job_loses_one_node_an_hour_and_three_a_day() -> None:
    story = story_with(ejects_per_job_hour_max=1, ejects_per_job_day_max=3)
    story.job("train", *(f"n{i}" for i in range(1, 9)))
    for n in range(1, 6):
        lose(story, f"n{n}")
        assert len(held(story)) == min(n, 3)
        story.after(3601)
    assert "3 of 3 in a day" in refusals(story)[-1]
    story.after(86_400)
    assert len(held(story)) > 3


def test_slowness_takes_no_node_without_a_spare_whatever_the_playbook_says() -> None:
    story = story_with(nodes=2, spares_for_slowness=1)
    story.job("train", "n1", "n2")
    rules = story.rules.policy
    slow = replace(rules.by_name["straggler-confirmed"], guards=type(rules.by_name["straggler-confirmed"].guards)())
    story.rules = replace(story.rules, policy=type(rules)([slow], "d", "s"))
    story.finding("straggler/node", Severity.ERROR)
    assert refusals(story) == ["refused spare: 0 free, 1 required to isolate a slow node"]
    story.no_job("n2")
    assert held(story) == ["n1"]


def test_a_spare_that_somebody_else_holds_is_none() -> None:
    story = story_with(nodes=3)
    story.hold("n2", schedulable=None)
    story.hold("n3", schedulable=False, owner=HoldOwner.SCHEDULER)
    assert story.state.index.free == {"n1"}


def test_spares_that_stand_near_come_first() -> None:
    story = story_with(nodes=4)
    places = {
        "n1": NodeLocation(rack="a", switch="s1"),
        "n4": NodeLocation(rack="a", switch="s1"),
        "n3": NodeLocation(rack="a"),
    }
    stand(story, places)
    assert str(find_nearest_spare(story.state, "n1")) == "n4 (same switch)"
    story.hold("n4", schedulable=None)
    assert str(find_nearest_spare(story.state, "n1")) == "n3 (same rack)"
    story.hold("n3", schedulable=None)
    assert str(find_nearest_spare(story.state, "n1")) == "n2"
    story.hold("n2", schedulable=None)
    assert find_nearest_spare(story.state, "n1") is None


def test_a_node_never_asked_about_is_no_spare() -> None:
    story = story_with(nodes=2)
    assert story.state.index.free == {"n1", "n2"}
    story.submit(FindingsReported(at=story.now, node="n3", boot_id="b", active=()))
    assert story.state.index.free == {"n1", "n2"}
    story.hold("n3", schedulable=True, owner=HoldOwner.NOBODY)
    assert story.state.index.free == {"n1", "n2", "n3"}


def test_people_see_which_spare_is_nearest() -> None:
    story = story_with(nodes=3)
    stand(story, {"n1": NodeLocation(switch="s1"), "n3": NodeLocation(switch="s1")})
    lose(story, "n1")
    (decision,) = story.decisions.values()
    assert "spare: n3 (same switch)" in decision.reason
    story.scheduler_answers("cordon")
    incident = story.state.incident_of("n1")
    assert incident is not None
    assert incident.plan[-1][0].detail == "quarantined for replacement; spare: n3 (same switch)"
    story.job("j", "n3")
    lose(story, "n2")
    assert "no spare is free" in list(story.decisions.values())[-1].reason


def test_hard_faults_pass_only_what_the_configuration_names() -> None:
    story = story_with(isolation_gap_s=600.0, pass_hard_faults=("gap",))
    lose(story, "n1")
    story.finding("fan/slow", Severity.ERROR, node="n2")
    lose(story, "n3")
    assert held(story) == ["n1", "n3"], "only a fatal fault passes"
    assert "ignored for fatal faults" in " ".join(list(story.decisions.values())[-1].guards)


@pytest.mark.parametrize("guard", ["level", "partition", "breaker", "common-cause", "gpa"])
def test_nothing_passes_the_level_or_what_people_must_decide(guard: str) -> None:
    with pytest.raises(ValueError, match=f"names '{guard}'"):
        IsolationBudget(pass_hard_faults=(guard,))
    assert guard not in PASSABLE


def test_a_restart_forgets_no_isolation() -> None:
    story = story_with(isolations_per_hour_max=2)
    lose(story, "n1")
    story.scheduler_answers("cordon")
    story.now += 1
    story.hold("n1", schedulable=True, owner=HoldOwner.NOBODY)  # a person gave it back; then it was taken once more
    lose(story, "n1")
    taken = [o for o in story.occurrences if o.kind == ISOLATION]
    assert [o.node for o in taken] == ["n1", "n1"]
    later = ClusterState.restored(story.state.nodes.values(), (), (), (), story.occurrences)
    assert later.isolated_at == story.state.isolated_at
    assert len(later.isolated_at) == 2


def test_an_isolation_by_a_leader_whose_clock_was_ahead_counts_as_of_now_and_not_until_that_time() -> None:
    story = story_with(isolations_per_hour_max=1, isolation_gap_s=600.0, ejects_per_job_hour_max=1)
    story.job("train", "n1", "n2")
    story.now += 30 * 86_400.0
    lose(story, "n1")
    story.now -= 30 * 86_400.0
    story.after(1)
    lose(story, "n2")
    assert [text.split(":")[0] for text in refusals(story)] == ["refused rate", "refused gap"]
    story.after(3601)
    assert held(story) == ["n1", "n2"]


def test_what_a_leader_put_off_whose_clock_was_ahead_is_tried_soon() -> None:
    story = story_with()
    story.now += 3600.0
    lose(story, "n1")
    story.scheduler_answers("cordon", ActionResult.FAILED)
    story.now -= 3600.0
    story.after(1)
    (cordon,) = story.open_actions("cordon")
    assert cordon.not_before == story.now + RETRY_MAX_S


def test_giving_back_is_never_blocked() -> None:
    story = story_with()
    finding = story.finding("fan/slow", Severity.ERROR)
    story.scheduler_answers("cordon")
    story.rules = replace(
        story.rules, budget=IsolationBudget(isolated_max=0, isolated_fraction_max=0, isolations_per_hour_max=0)
    )
    story.check_level = False
    story.after(1).hold(drained=True)
    story.orders_end("run_preflight")
    story.clear(finding)
    story.scheduler_answers("resume")
    assert story.node_state() == "probation"
    assert not held(story)

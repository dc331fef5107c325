"""A cause that many nodes share is told as it grows, with the fleet's total, and once however many places overlap."""

from __future__ import annotations

import itertools

from msgspec.structs import replace

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import BREAKER, Action, Incident
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import IncidentCommand, IncidentCommandKind, TopologyObserved
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity

TOTAL = 100


def fleet(places: dict[str, NodeLocation], nodes: int = TOTAL) -> Story:
    found = Story(settings(budget=IsolationBudget()), nodes=nodes)
    found.submit(TopologyObserved(at=found.now, source="file", places=places))
    return found


def with_driver() -> Story:
    """30 nodes run the new driver, the rest are in racks of ten."""
    return fleet(
        {f"n{n}": NodeLocation(driver="570.1" if n <= 30 else "550", rack=f"r{n % 10}") for n in range(1, TOTAL + 1)}
    )


def racks_only() -> Story:
    return fleet({f"n{n}": NodeLocation(rack=f"r{(n - 1) // 10}") for n in range(1, TOTAL + 1)})


def fell(found: Story, numbers: list[int], within_s: float = 12.0) -> None:
    for n in numbers:
        found.now += within_s / len(numbers)
        found.finding("xid/79", Severity.FATAL, node=f"n{n}")


def alerts(found: Story, about: str) -> list[Action]:
    return sorted(
        (a for a in found.actions.values() if a.verb == "alert" and a.node == about), key=lambda a: a.planned_at
    )


def causes(found: Story) -> list[Incident]:
    return [i for i in found.state.wide() if i.node != BREAKER]


def test_people_hear_again_as_it_doubles_and_the_title_is_never_behind() -> None:
    found = with_driver()
    fell(found, [*range(1, 31), *range(31, 41)])
    (incident,) = [i for i in causes(found) if i.node == "driver:570.1"]
    found.after(1)
    assert incident.members == tuple(sorted(f"n{n}" for n in range(1, 31)))
    assert "all 30 nodes with driver 570.1" in found.state.incidents[incident.id].title
    found.after(60)
    title = found.state.incidents[incident.id].title
    assert title.startswith("40 of 100 nodes failed within 12 s, among them all 30 nodes with driver 570.1"), title
    first, then = alerts(found, "driver:570.1")
    assert "3 of 30 nodes with driver 570.1" in str(first.data["how"])
    assert str(then.data["how"]).startswith(title)
    assert then.data["update"] is True
    found.after(3600)
    assert len(alerts(found, "driver:570.1")) == 2, "nothing grew"


def test_a_burst_is_told_at_most_twice_a_minute() -> None:
    found = with_driver()
    for n in range(1, 31):
        fell(found, [n], within_s=2.0)
        found.after(0.25)
    found.after(60)
    told = [a.planned_at for a in alerts(found, "driver:570.1")]
    assert len(told) <= 4
    assert all(b - a >= 30 for a, b in itertools.pairwise(told))


def test_people_read_that_the_breaker_stays_closed_by_design_and_how_to_go_on_all_the_same() -> None:
    found = with_driver()
    fell(found, [1, 2, 3])
    (incident,) = causes(found)
    (alert,) = alerts(found, incident.node)
    how = str(alert.data["how"])
    assert "No node of this group is isolated while this incident is open. This is by design" in how
    assert "the breaker stays closed" in how
    assert f"healthctl incidents resolve {incident.id}" in how


def test_what_many_racks_see_at_once_is_one_incident_with_the_fleets_total() -> None:
    found = racks_only()
    fell(found, [10 * rack + n for n in range(1, 5) for rack in range(10)])
    found.after(60)
    (incident,) = causes(found)
    assert incident.node == "cluster:failures"
    assert incident.title.startswith("40 of 100 nodes failed within 12 s"), incident.title
    assert "in 10 racks" in incident.title
    assert len(incident.members) == 40
    assert len([a for a in found.actions.values() if a.verb == "alert"]) <= 5
    parts = [i.outcome for i in found.incidents.values() if i.wide and i.closed_at is not None]
    assert parts
    assert all(outcome == f"now part of {incident.id}, cluster:failures" for outcome in parts)
    assert len(found.state.held) <= 1


def test_what_people_ended_as_a_whole_opens_no_part_again() -> None:
    found = racks_only()
    fell(found, [10 * rack + n for n in range(1, 5) for rack in range(10)])
    for incident in found.state.wide():
        word = IncidentCommandKind.RESOLVE
        found.submit(IncidentCommand(at=found.now, node=incident.node, incident=incident.id, word=word, actor="ann"))
    fell(found, [5], within_s=1.0)
    assert not causes(found), "one more in a rack of which four were looked at"


def test_racks_that_fail_hours_apart_stay_apart() -> None:
    found = racks_only()
    found.rules = replace(found.rules, budget=replace(found.rules.budget, common_cause_slow_s=0.0))
    for rack in range(3):
        fell(found, [10 * rack + n for n in range(1, 5)])
        found.after(7200)
    assert sorted(i.node for i in causes(found)) == ["rack:r0", "rack:r1", "rack:r2"]


def test_the_breaker_tells_how_many_there_are_by_now() -> None:
    found = fleet({})
    fell(found, list(range(1, 41)))
    found.after(60)
    (incident,) = found.state.wide()
    assert incident.node == BREAKER
    assert "By now 40 of 100 nodes have failed" in incident.title
    _, then = alerts(found, BREAKER)
    assert "By now 40 of 100 nodes have failed" in str(then.data["how"])
    assert "healthctl breaker reset" in str(then.data["how"])

"""What fells many nodes in life, with the budget as shipped: one incident about the right thing, and no batch of cordons."""

from __future__ import annotations

from collections.abc import Iterable

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import BREAKER
from remediator.model.node_location import NodeLocation
from remediator.model.pipeline_inputs import SilenceObserved, TopologyObserved
from remediator.model.scheduler_hold import HoldOwner
from tests.timelines.timeline import Story, settings
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

PORT = Component(ComponentKind.NIC_PORT, "mlx5_0/1")
NODES, RACK, LEAF = 200, 8, 16


def fleet(new: Iterable[int] = ()) -> Story:
    """Racks of 8, two of them on a leaf switch; some nodes have the new driver."""
    story = Story(settings(budget=IsolationBudget()), nodes=NODES)
    stand(story, new)
    return story


def stand(story: Story, new: Iterable[int]) -> None:
    upgraded = set(new)
    places = {
        f"n{n}": NodeLocation(
            rack=f"r{(n - 1) // RACK}",
            switch=f"leaf{(n - 1) // LEAF}",
            image="jammy",
            driver="new" if n in upgraded else "old",
        )
        for n in range(1, NODES + 1)
    }
    story.submit(TopologyObserved(at=story.now, source="file", places=places))


def scattered(count: int, *, of: int, step: int) -> list[int]:
    """Numbers from 1 to `of` in an order that follows no rack; `step` has no factor in common with `of`."""
    return [1 + step * i % of for i in range(count)]


def about(story: Story) -> list[str]:
    return [incident.node for incident in story.state.wide()]


def alerts(story: Story) -> list[str]:
    return [action.node for action in story.actions.values() if action.verb == "alert"]


def test_a_rack_of_eight_loses_its_power() -> None:
    story = fleet()
    story.job("train", *(f"n{n}" for n in range(1, 33)))
    for dark in (range(1, 5), range(1, 9)):  # they are missed one after another
        story.submit(SilenceObserved(at=story.now, silent={f"n{n}": story.now - 300 for n in dark}))
        story.after(5)
    for n in range(1, 9):
        story.hold(f"n{n}", owner=HoldOwner.SCHEDULER)
    story.after(600)
    assert about(story) == ["silence:rack:r0"]
    assert story.state.wide()[0].members == tuple(f"n{n}" for n in range(1, 9))
    assert alerts(story) == ["silence:rack:r0"]
    assert not story.state.held
    story.submit(SilenceObserved(at=story.now, silent={}))
    assert not story.state.incidents


def test_a_new_driver_fells_thirty_nodes_over_three_hours() -> None:
    story = fleet(range(1, 101))
    for n in scattered(30, of=100, step=37):
        story.finding("xid/119", Severity.FATAL, node=f"n{n}")
        story.after(360)
    assert about(story) == ["driver:new"]
    assert len(story.state.wide()[0].members) == 30
    assert len(story.state.held) <= 3
    assert set(alerts(story)) == {"driver:new"}


def test_a_new_driver_that_goes_from_rack_to_rack_is_still_the_driver() -> None:
    story = fleet()
    for n in range(1, 31):
        stand(story, range(1, n + 1))
        story.finding("xid/119", Severity.FATAL, node=f"n{n}")
        story.after(360)
    assert about(story) == ["driver:new"]
    assert len(story.state.held) <= 3


def test_one_users_mistake_goes_over_forty_nodes() -> None:
    story = fleet()
    for attempt in range(5):
        nodes = [f"n{n}" for n in range(8 * attempt + 1, 8 * attempt + 9)]
        story.job("bug", *nodes, attempt=attempt)
        for node in nodes:
            story.finding("xid/31", Severity.INFO, node=node)
        story.after(30).no_job(*nodes)
        story.after(600)
    assert not story.state.held
    (incident,) = story.incidents.values()
    assert (incident.node, incident.rule, len(incident.members)) == ("job:bug", "job-at-fault", 40)
    assert len(alerts(story)) <= 4, "told as it doubles"


def test_one_job_fells_forty_nodes_one_by_one() -> None:
    story = fleet()
    for attempt in range(1, 41):
        pair = (f"n{attempt}", f"n{attempt + 100}")
        story.job("bug", *pair, attempt=attempt)
        story.finding("xid/79", Severity.FATAL, node=pair[0])
        story.after(30).no_job(*pair)
        story.after(300)
    assert about(story) == ["job:bug"]
    assert len(story.state.wide()[0].members) == 40
    assert len(story.state.held) <= 3


def test_a_switch_flaps() -> None:
    story = fleet()
    story.job("train", *(f"n{n}" for n in range(1, 33)))
    for _ in range(5):
        down = []
        for n in scattered(16, of=16, step=5):
            down.append(story.finding("infiniband/down", Severity.ERROR, node=f"n{n}", component=PORT, level=True))
            story.now += 0.5
        story.after(20)
        for finding in down:
            story.clear(finding)
        story.after(100)
    assert about(story) == ["switch:leaf0"]
    assert set(alerts(story)) <= {"switch:leaf0", "rack:r0", "rack:r1"}
    assert len(story.state.held) <= 1


def test_what_shares_nothing_opens_the_breaker() -> None:
    story = Story(settings(budget=IsolationBudget()), nodes=NODES)
    for n in range(1, 31):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    assert about(story) == [BREAKER]
    story.after(90_000)
    assert len(story.state.held) == 1


def test_a_storm_that_takes_one_rack_after_the_other_is_not_one_incident_each() -> None:
    story = fleet()
    for n in range(1, 121):
        story.finding("xid/79", Severity.FATAL, node=f"n{n}")
    assert "driver:old" in about(story)
    assert len(about(story)) <= 3
    assert len(story.state.held) == 1

"""Every order of events from a fault to a node that is back. `docs/internals/models.md` says what is explored and what not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.models.actions import Cluster
from tests.models.broken_actions import BROKEN, TakesLateCalls
from tests.models.cluster_world import Bounds
from tests.models.exploration import explore

EXPLORED = {
    "nothing fails": Bounds(),
    "the leader is killed": Bounds(crashes=1),
    "the leader is deposed and does not know": Bounds(losses=1),
    "three replicas, two are killed": Bounds(replicas=3, crashes=2),
    "the scheduler fails twice": Bounds(failures=2),
    "two faulty nodes, a budget of one": Bounds(nodes=2, faulty=2),
    "a person drains and resumes": Bounds(words=("drain", "resume")),
    "a person says hands off and releases": Bounds(words=("hold", "release")),
    "a person stops automation, and a leader is killed": Bounds(crashes=1, words=("stop", "go on")),
}
LARGE = {
    "two faulty nodes, the leader is killed": Bounds(nodes=2, faulty=2, crashes=1),
    "two faulty nodes, the scheduler fails": Bounds(nodes=2, faulty=2, failures=1),
    "deposed, and a leader is killed": Bounds(losses=1, crashes=1),
    "two are killed, the scheduler fails": Bounds(crashes=2, failures=1),
    "deposed while a person drains and resumes": Bounds(losses=1, words=("drain", "resume")),
    "deposed while a person says hands off and releases": Bounds(losses=1, words=("hold", "release"), prompt=True),
    "a person says hands off and releases, the leader is killed": Bounds(
        crashes=1, words=("hold", "release"), prompt=True
    ),
    "deposed while a person stops automation": Bounds(losses=1, words=("stop", "go on")),
    "stop, drain, resume, go on": Bounds(words=("stop", "go on", "drain", "resume"), failures=1),
}


@pytest.mark.parametrize("bounds", EXPLORED.values(), ids=EXPLORED)
def test_no_order_of_events_breaks_a_rule_or_leaves_a_node_between(bounds: Bounds) -> None:
    explored = explore(Cluster(bounds))

    assert not explored.wrong, f"\n{explored}"
    assert explored.ends


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_nor_does_any_when_more_goes_wrong(bounds: Bounds) -> None:
    explored = explore(Cluster(bounds))
    print(explored._replace(story=()))

    assert not explored.wrong, f"\n{explored}"


@pytest.mark.parametrize("cluster", BROKEN, ids=lambda cluster: cluster.name)
def test_without_a_rule_it_tells_what_goes_wrong(cluster: Cluster, golden: Callable[[str, str], None]) -> None:
    explored = explore(cluster)

    assert explored.wrong, f"nobody notices: {cluster.name}"
    golden(f"models/actions/{type(cluster).__name__}.txt", f"{cluster.name}\n\n{explored}")


@pytest.mark.parametrize("bounds", [Bounds(crashes=1), Bounds(losses=1)], ids=["killed", "deposed"])
def test_what_a_call_without_a_deadline_undoes_is_seen_and_told_to_a_person(bounds: Bounds) -> None:
    explored = explore(TakesLateCalls(bounds))

    assert not explored.wrong, f"\n{explored}"


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_it_may_come_on_top_of_the_budget() -> None:
    explored = explore(TakesLateCalls(Bounds(nodes=2, faulty=2, crashes=1)))

    assert explored.wrong == "n1 and n2 are held in the scheduler, and the budget is one node", f"\n{explored}"

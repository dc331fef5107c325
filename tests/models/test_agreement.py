"""Every order of events among a few ranks and their store. `docs/internals/models.md` says what is explored and what not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.models.agreement import Bounds, Job
from tests.models.broken_agreement import BROKEN
from tests.models.exploration import explore

EXPLORED = {
    "three ranks, each finds the order or not": Bounds(),
    "three ranks that all find it": Bounds(surely_told=True),
    "three ranks, a store that fails once": Bounds(faults=1),
    "three ranks, hosts two steps ahead of their devices": Bounds(ahead=2),
    "three ranks, the order is cancelled or too old": Bounds(cancelled=True, expires=True),
    "three ranks, one dies": Bounds(deaths=1),
    "four ranks": Bounds(ranks=4),
    "two ranks, two orders, one is cancelled": Bounds(ranks=2, orders=("a", "b"), cancelled=True),
    "two ranks, a store that fails twice, one dies": Bounds(ranks=2, faults=2, deaths=1),
}
LARGE = {
    "three ranks, a store that fails once, one dies, the order expires": Bounds(faults=1, deaths=1, expires=True),
    "three ranks, a store that fails twice": Bounds(faults=2),
    "four ranks, a store that fails once, one dies": Bounds(ranks=4, boundaries=3, faults=1, deaths=1),
    "three ranks, two orders, one dies": Bounds(orders=("a", "b"), deaths=1),
    "two ranks, all of it": Bounds(ranks=2, faults=2, deaths=1, cancelled=True, expires=True, ahead=1),
}


@pytest.mark.parametrize("bounds", EXPLORED.values(), ids=EXPLORED)
def test_no_order_of_events_splits_the_ranks_or_leaves_them_waiting(bounds: Bounds) -> None:
    explored = explore(Job(bounds))

    assert not explored.wrong, f"\n{explored}"
    assert explored.ends


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_nor_does_any_of_many_more(bounds: Bounds) -> None:
    explored = explore(Job(bounds), states_max=10_000_000)
    print(explored._replace(story=()))

    assert not explored.wrong, f"\n{explored}"


@pytest.mark.parametrize("job", BROKEN, ids=lambda job: job.name)
def test_without_a_rule_it_tells_how_they_come_apart(job: Job, golden: Callable[[str, str], None]) -> None:
    explored = explore(job)

    assert explored.wrong, f"nobody notices: {job.name}"
    golden(f"models/agreement/{type(job).__name__}.txt", f"{job.name}\n\n{explored}")


def test_the_same_orders_of_events_with_the_rule_in_place_are_well() -> None:
    assert not [explored for job in BROKEN if (explored := explore(Job(job.bounds))).wrong]

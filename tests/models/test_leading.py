"""Every order of events among a few replicas and their lock. `docs/internals/models.md` says what is explored and what not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.models.broken_leading import BROKEN
from tests.models.exploration import explore
from tests.models.leading import Bounds, Leading

EXPLORED = {
    "three replicas, a session is lost": Bounds(3, losses=1, crashes=0),
    "three replicas, one is killed": Bounds(3, losses=0, crashes=1),
    "two replicas, two are killed": Bounds(2, losses=0, crashes=2),
    "two replicas, a session is lost, one is killed": Bounds(2, losses=1, crashes=1),
}
LARGE = {
    "three replicas, a session is lost, one is killed": Bounds(3, losses=1, crashes=1),
    "two replicas, two sessions are lost, one is killed": Bounds(2, losses=2, crashes=1),
    "two replicas, a session is lost, two are killed": Bounds(2, losses=1, crashes=2),
}


@pytest.mark.parametrize("bounds", EXPLORED.values(), ids=EXPLORED)
def test_effects_and_commits_come_in_the_order_of_epochs_and_somebody_leads_at_last(bounds: Bounds) -> None:
    explored = explore(Leading(bounds))

    assert not explored.wrong, f"\n{explored}"
    assert explored.ends


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("bounds", LARGE.values(), ids=LARGE)
def test_so_they_do_when_more_goes_wrong(bounds: Bounds) -> None:
    explored = explore(Leading(bounds))
    print(explored._replace(story=()))

    assert not explored.wrong, f"\n{explored}"


@pytest.mark.parametrize("leading", BROKEN, ids=lambda leading: leading.name)
def test_without_a_rule_it_tells_how_two_lead_or_nobody(leading: Leading, golden: Callable[[str, str], None]) -> None:
    explored = explore(leading)

    assert explored.wrong, f"nobody notices: {leading.name}"
    golden(f"models/leading/{type(leading).__name__}.txt", f"{leading.name}\n\n{explored}")

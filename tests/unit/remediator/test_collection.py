"""What outlives the young is found as well, each generation at its time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from remediator.serving import collection as module
from remediator.serving.collection import EVERY_S, Collection


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.mark.parametrize("generation", [0, 1, 2])
def test_a_cycle_that_ended_is_found_once_its_generation_is_due(generation: int) -> None:
    collection = Collection(0.0)
    cycle = Cycle()
    gone = weakref.ref(cycle)
    for older in range(generation):
        gc.collect(older)
    del cycle
    collection.step(EVERY_S[generation] * 0.9)
    assert gone() is not None
    collection.step(EVERY_S[generation])
    assert gone() is None


def test_the_young_are_collected_between_times_too() -> None:
    collection = Collection(0.0)
    collection.step(EVERY_S[1])
    cycle = Cycle()
    gone = weakref.ref(cycle)
    del cycle
    collection.step(EVERY_S[1] + EVERY_S[0])
    assert gone() is None


def test_all_are_looked_at_early_when_the_old_have_grown_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWN_OBJECTS", 20_000)
    collection = Collection(0.0)
    cycles = [Cycle() for _ in range(20_001)]
    gone = weakref.ref(cycles[0])
    gc.collect(1)
    cycles.clear()
    collection.step(EVERY_S[0])
    assert gone() is not None
    collection.step(EVERY_S[1])
    assert gone() is None


def test_many_that_outlived_one_collection_do_not_wait_until_they_are_a_million(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fleet that joined was looked at whole a minute later, and nobody was answered for a second."""
    monkeypatch.setattr(module, "MIDDLE_OBJECTS", 20_000)
    collection = Collection(0.0)
    cycles = [Cycle() for _ in range(20_001)]
    gone = weakref.ref(cycles[0])
    gc.collect(0)
    cycles.clear()
    collection.step(EVERY_S[0])
    assert gone() is None


def test_few_that_outlived_one_collection_wait_for_their_time() -> None:
    collection = Collection(0.0)
    gc.collect(1)
    kept = Cycle()
    gone = weakref.ref(kept)
    gc.collect(0)
    del kept
    collection.step(EVERY_S[0])
    assert gone() is not None

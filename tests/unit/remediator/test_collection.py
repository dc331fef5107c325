"""What outlives the young is found as well, each generation at its time."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from remediator.serving import collection as module
from remediator.serving.collection import EVERY_S, Collection

LOOKS = 290  # before the middle ones are due


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Threads take turns after a tenth of a millisecond."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


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


def test_to_count_what_is_old_disturbs_no_thread_that_is_making_a_tuple(
    monkeypatch: pytest.MonkeyPatch, switching_often: None
) -> None:
    """Whoever else refers to a tuple that is not finished breaks its maker: SystemError, anywhere in the process."""
    monkeypatch.setattr(module, "MIDDLE_OBJECTS", 10**9)
    collection = Collection(0.0)
    broken: list[BaseException] = []
    over = threading.Event()

    def make() -> None:
        try:
            while not over.is_set():
                tuple(n for n in range(100))
        except SystemError as error:
            broken.append(error)

    makers = [threading.Thread(target=make) for _ in range(3)]
    for maker in makers:
        maker.start()
    for number in range(1, LOOKS):
        kept = [
            Cycle() for _ in range(200)
        ]  # many are old, so that to count them takes long enough for others to have their turn
        collection.step(number * EVERY_S[0])
        if broken:
            break
    del kept
    over.set()
    for maker in makers:
        maker.join()
    assert broken == []

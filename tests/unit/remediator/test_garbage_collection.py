"""What outlives the young is found as well, at its time."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator

import pytest

from remediator.serving import garbage_collection as module
from remediator.serving.garbage_collection import ALL_S, COUNT_S, YOUNG_S, GarbageCollection

LOOKS = 290


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


def test_a_young_cycle_that_ended_is_found_at_the_next_step() -> None:
    collection = GarbageCollection(0.0)
    cycle = Cycle()
    gone = weakref.ref(cycle)
    del cycle
    collection.step(YOUNG_S)
    assert gone() is None


def test_what_outlived_a_step_is_walked_over_when_all_are() -> None:
    collection = GarbageCollection(0.0)
    cycle = Cycle()
    gone = weakref.ref(cycle)
    collection.step(YOUNG_S)
    del cycle
    collection.step(ALL_S * 0.9)
    assert gone() is not None
    collection.step(ALL_S)
    assert gone() is None


def test_after_all_were_collected_the_young_are_again() -> None:
    collection = GarbageCollection(0.0)
    collection.step(ALL_S)
    cycle = Cycle()
    gone = weakref.ref(cycle)
    del cycle
    collection.step(ALL_S + YOUNG_S)
    assert gone() is None


def test_all_are_looked_at_early_when_the_old_have_grown_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROWN_OBJECTS", 20_000)
    collection = GarbageCollection(0.0)
    cycles = [Cycle() for _ in range(20_001)]
    gone = weakref.ref(cycles[0])
    collection.step(YOUNG_S)
    cycles.clear()
    collection.step(2 * YOUNG_S)
    assert gone() is not None
    collection.step(COUNT_S)
    assert gone() is None


def test_to_count_what_is_old_disturbs_no_thread_that_is_making_a_tuple(
    monkeypatch: pytest.MonkeyPatch, switching_often: None
) -> None:
    """Whoever else refers to a tuple that is not finished breaks its maker: SystemError, anywhere in the process."""
    monkeypatch.setattr(module, "COUNT_S", YOUNG_S)
    collection = GarbageCollection(0.0)
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
        collection.step(number * YOUNG_S)
        if broken:
            break
    del kept
    over.set()
    for maker in makers:
        maker.join()
    assert broken == []

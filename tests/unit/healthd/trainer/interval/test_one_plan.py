"""All ranks save in the same steps, however far their hosts are apart and whatever becomes of the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from healthd.trainer.agreement import LocalStore, Store
from healthd.trainer.interval import Bounds, CheckpointInterval
from healthd.trainer.interval.checkpoint_schedule import RankIdentity
from vocabulary.clock import ManualClock

T = TypeVar("T")
DEADLINE_S = 60.0
STEPS = 400


class Flaky:
    """A connection of one rank's: as its plan says a request is lost, or a reply, for a while or for good."""

    def __init__(self, store: LocalStore, faults: Iterator[str]) -> None:
        self.store, self.faults = store, faults

    def add(self, key: str, amount: int, /) -> int:
        return self._maybe(lambda: self.store.add(key, amount))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        return self._maybe(lambda: self.store.compare_set(key, expected, desired))

    def _maybe(self, deed: Callable[[], T]) -> T:
        fault = next(self.faults, "")
        if fault == "before":
            raise ConnectionError("the request is lost")
        result = deed()
        if fault == "after":
            raise ConnectionError("the reply is lost")
        return result


class Host:
    """One rank of a job whose hosts do not wait for each other."""

    def __init__(self, rank: int, store: Store, step_s: float, stall_s: float) -> None:
        self.clock, self.step_s, self.stall_s = ManualClock(), step_s, stall_s
        bounds = Bounds(least_s=1, first_steps=20)
        seat = RankIdentity("train", 0, rank, "")
        self.interval = CheckpointInterval(
            nodes=100, node_mtbf_s=1e6, seat=seat, store=store, bounds=bounds, clock=self.clock
        )
        self.saved: list[int] = []
        self.step = 0

    def train(self) -> None:
        self.clock.advance(self.step_s)
        if self.interval.due(self.step):
            with self.interval.saving(self.step):
                self.clock.advance(self.stall_s)
            self.saved.append(self.step)
        self.step += 1


def train_apart(ahead: Host, behind: Host, lead: int) -> None:
    """The one host is as far ahead of the other as it may be; not further, as after a queue of work that is full."""
    moved = threading.Condition()

    def run(host: Host, may: Callable[[], bool]) -> None:
        for _ in range(STEPS):
            with moved:
                assert moved.wait_for(may, DEADLINE_S)
            host.train()
            with moved:
                moved.notify_all()

    deeds = [
        (ahead, lambda: ahead.step < behind.step + lead),
        (behind, lambda: behind.step < ahead.step),  # a collective needs the other's part as well
    ]
    threads = [threading.Thread(target=run, args=deed) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("lead", [1, 2, 9])
@pytest.mark.parametrize("first_ahead", [True, False])
def test_a_host_that_is_ahead_waits_for_the_number(lead: int, *, first_ahead: bool) -> None:
    store = LocalStore()
    first, other = (Host(rank, store, 20.0, 0.4 + rank) for rank in range(2))
    train_apart(*((first, other) if first_ahead else (other, first)), lead + 1)

    assert first.saved == other.saved
    assert len(first.saved) > STEPS / 12
    assert first.interval.interval_steps < 20


@settings(max_examples=40, deadline=None)  # it waits for threads
@given(st.lists(st.lists(st.sampled_from(["", "", "before", "after"]), max_size=8), min_size=3, max_size=3))
def test_answers_that_are_lost_for_a_while_split_nobody(faults: list[list[str]]) -> None:
    store = LocalStore()
    hosts = [Host(rank, Flaky(store, iter(each)), 20.0, 0.4) for rank, each in enumerate(faults)]
    for _ in range(60):
        for host in hosts:
            host.train()
    assert hosts[0].saved == hosts[1].saved == hosts[2].saved
    assert hosts[0].interval.interval_steps != 20


def test_a_store_that_is_gone_for_good_ends_no_training_and_the_plan_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, gone = LocalStore(), threading.Event()
    hosts = [
        Host(rank, Flaky(store, ("before" if gone.is_set() else "" for _ in iter(int, 1))), 20.0, 0.4)
        for rank in range(3)
    ]
    with caplog.at_level(logging.ERROR):
        for step in range(STEPS):
            if step == 100:
                gone.set()
                monkeypatch.setattr("healthd.trainer.interval.checkpoint_schedule.WORD_SECONDS", 0.0)
            for host in hosts:
                host.train()
    assert hosts[0].saved == hosts[1].saved == hosts[2].saved
    assert hosts[0].saved[-1] > STEPS - 20
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "steps from now on, and training continues" in caplog.text


def test_who_has_waited_too_long_for_rank_0_decides_for_all(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("healthd.trainer.interval.checkpoint_schedule.WAIT_SECONDS", 0.0)
    store = LocalStore()
    first, *others = (Host(rank, store, 20.0, 0.4) for rank in range(3))
    with caplog.at_level(logging.ERROR):
        for _ in range(12):
            for host in others:
                host.train()
    assert "check that all ranks call due() in every step" in caplog.text
    for _ in range(12):
        first.train()
    for _ in range(60):
        for host in (first, *others):
            host.train()
    assert first.saved == others[0].saved == others[1].saved
    assert first.interval.interval_steps < 20

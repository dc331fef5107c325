"""Ticks come by the clock, not by the batch; under pressure, batches gather what arrives shortly after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from remediator.engine import decision_engine as engines
from remediator.engine.decision_engine import TICK_S, DecisionEngine
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, PlacementChanged, Tick
from remediator.store.journal import Journal
from tests.timelines.timeline import settings
from vocabulary.clock import ManualClock


class Taken:
    """What the engine decides on, batch by batch, without its thread."""

    def __init__(self, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.engine = DecisionEngine(journal, settings(), self.clock, lambda _snapshot: None)
        self.batches: list[list[AnyInput]] = []
        write = self.engine._batches.write

        def kept(items: Sequence[AnyInput]) -> bool:
            self.batches.append(list(items))
            return write(items)

        monkeypatch.setattr(self.engine._batches, "write", kept)

    def turn(self, count: int = 1) -> list[AnyInput]:
        """Submit so many inputs, and take one batch."""
        for number in range(count):
            job = JobRef("j", len(self.batches) * 1000 + number)
            self.engine.submit(PlacementChanged(at=self.clock.wall(), node="n1", jobs=(job,)))
        self.engine._turn()
        return self.batches[-1]


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Taken]:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    yield Taken(journal, monkeypatch)
    journal.close()


def ticks(batches: Sequence[Sequence[AnyInput]]) -> list[float]:
    return [item.at for batch in batches for item in batch if isinstance(item, Tick)]


def test_batches_within_a_quarter_of_a_second_share_one_tick(taken: Taken) -> None:
    begin = taken.clock.wall()
    for _ in range(8):
        taken.turn()
        taken.clock.advance(TICK_S / 4)
    assert ticks(taken.batches) == [begin, begin + TICK_S]
    assert isinstance(taken.batches[4][-1], Tick), "after the inputs that came before it"


def test_the_clock_goes_on_without_inputs(taken: Taken) -> None:
    taken.turn()
    taken.clock.advance(TICK_S)
    assert taken.turn(0) == [Tick(at=taken.clock.wall())]
    assert taken.engine.waiting == 0


def test_a_large_batch_lets_the_next_one_gather(taken: Taken, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "GATHER_S", 60.0)
    asked: list[float] = []
    get = taken.engine._queue.get

    def noted(timeout: float) -> object:
        asked.append(timeout)
        return get(timeout=0.0 if taken.engine._queue.empty() else timeout)

    monkeypatch.setattr(taken.engine._queue, "get", noted)
    taken.turn(2)
    assert max(asked[1:]) == 0.0, "a small one does not wait for more"
    taken.turn(engines.PRESSURE_MIN)
    asked.clear()
    taken.turn(2)
    assert max(asked[1:]) == 60.0
    asked.clear()
    taken.turn(1)
    assert max(asked[1:], default=0.0) == 0.0, "and no longer once the pressure is over"


def test_a_tick_is_due_however_much_arrives(taken: Taken) -> None:
    for _ in range(8):
        taken.turn(engines.BATCH_MAX)
        taken.clock.advance(TICK_S)
    assert len(ticks(taken.batches)) == 8

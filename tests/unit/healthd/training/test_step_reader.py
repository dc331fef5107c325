"""Pages that ranks really write, read once a second as the daemon does, up to what the watchdogs say of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.checks.training_checks import JOBS_MAX, Limits, TrainingCheck
from healthd.collectors.beacons import BeaconCollector
from healthd.findings.facts import Moment, Raise
from healthd.samples.rank_steps import RankSteps
from healthd.thresholds import load_thresholds
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.page_reader import read_page
from healthd.trainer.beacons.step_ring import AWAITED, GRAD_NORM, LOSS, EntryMeasurements, StepSection
from healthd.training.step_reader import ENTRIES_PER_LOOK, StepReader
from vocabulary.clock import ManualClock

LIMITS = load_thresholds().section("training", Limits)
TIMED = (1 << (StepSection.COMMUNICATION - 1)) | (1 << (StepSection.CHECKPOINT - 1))


class Ranks:
    """Two ranks of a job on this node, in one process and on one clock."""

    def __init__(self, place: Path) -> None:
        place.chmod(0o755)
        self.clock = ManualClock()
        self.beacons = [
            Beacon.create(str(place), RankPlacement("train", 0, r, 2, r, "n1"), self.clock) for r in range(2)
        ]
        self.collector, self.check = BeaconCollector(place), TrainingCheck(LIMITS)

    def step(self, number: int, loss: float = 2.0, flags: int = 0) -> None:
        for beacon in self.beacons:
            beacon.begin_step(number)
        self.clock.advance(1.0)
        seconds = [0.0] * len(StepSection)
        seconds[StepSection.COMMUNICATION] = 0.25
        for beacon in self.beacons:
            beacon.end_measured_step(EntryMeasurements(LOSS | GRAD_NORM | TIMED | flags, seconds, loss, 1.0))

    def look(self) -> tuple[RankSteps, ...]:
        return self.collector.read(self.clock.wall()).steps

    def told(self) -> set[str]:
        held = self.check.judge(self.look(), Moment(self.clock.wall(), self.clock.monotonic()))
        return {fact.code for fact in held if isinstance(fact, Raise)}


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for beacon in ranks.beacons:
        beacon.close()


def test_each_finished_step_is_handed_over_once_with_what_was_told(ranks: Ranks) -> None:
    ranks.step(70)
    ranks.step(71, loss=math.nan)
    seen = ranks.look()
    assert [(s.rank, s.phase, s.completed, [n.step for n in s.new]) for s in seen] == [
        (0, "between", 2, [70, 71]),
        (1, "between", 2, [70, 71]),
    ]
    first, second = seen[0].new
    assert (first.loss, first.gradient_norm, first.tokens) == (2.0, 1.0, None)
    assert (first.communication_s, first.checkpoint_s, first.seconds) == (0.25, 0.0, 1.0)
    assert math.isnan(second.loss or 0)
    assert [s.new for s in ranks.look()] == [(), ()]
    ranks.step(72)
    assert [[n.step for n in s.new] for s in ranks.look()] == [[72], [72]]


def test_numbers_that_the_gpu_still_owes_are_waited_for_but_not_for_ever(ranks: Ranks) -> None:
    ranks.step(0)
    ranks.step(1, flags=AWAITED)
    ranks.step(2)
    assert [n.step for n in ranks.look()[0].new] == [0]
    for number in range(3, 17):
        ranks.step(number)
    assert ranks.look()[0].new == ()
    ranks.step(17)
    assert [n.step for n in ranks.look()[0].new] == list(range(1, 18))


def test_a_daemon_that_starts_late_reads_what_the_ring_still_holds(ranks: Ranks) -> None:
    for number in range(1100):
        ranks.step(number)
    assert [n.step for n in ranks.look()[0].new] == list(range(76, 1100))


def test_what_one_look_reads_is_bounded(ranks: Ranks) -> None:
    for number in range(1024):
        ranks.step(number)
    reader, page = StepReader(), read_page(ranks.beacons[0].path)
    taken = [len(reader.take(page.identity._replace(rank=r), page.state, page.ring, alive=True).new) for r in range(10)]
    assert sum(taken) == ENTRIES_PER_LOOK
    reader.end_look()
    again = [len(reader.take(page.identity._replace(rank=r), page.state, page.ring, alive=True).new) for r in range(10)]
    assert sum(again) == 2 * 1024


def test_a_rank_that_hangs_in_its_data_is_named_from_its_page(ranks: Ranks) -> None:
    for number in range(100):
        ranks.step(number)
        assert ranks.told() == set()
    for beacon, section in zip(ranks.beacons, (StepSection.COMMUNICATION, StepSection.DATA), strict=True):
        beacon.begin_step(100)
        beacon.section(section)
    for _ in range(490):
        ranks.clock.advance(1.0)
        held = ranks.check.judge(ranks.look(), Moment(ranks.clock.wall(), ranks.clock.monotonic()))
    said = [fact for fact in held if isinstance(fact, Raise)]
    assert [(f.code, f.evidence["rank"], f.evidence["section"], f.evidence["not_arrived"]) for f in said] == [
        ("stalled", 1, "data", "1")
    ]


def test_a_loss_that_is_none_is_told_and_ends_with_good_ones(ranks: Ranks) -> None:
    ranks.step(0, loss=math.inf)
    assert ranks.told() == {"loss_not_finite"}
    for number in range(1, 21):
        ranks.step(number)
    assert ranks.told() == set()


def test_invented_jobs_do_not_fill_the_ledger() -> None:
    pages = [
        RankSteps(f"job{n:04}" * 500, 0, 0, 1, 1, alive=True, step=0, completed=0, phase="step") for n in range(500)
    ]
    check = TrainingCheck(LIMITS)
    check.judge(pages, Moment(0, 0))
    held = check.judge(pages, Moment(5000, 5000))
    assert len(held) == JOBS_MAX
    assert max(len(fact.component.name) for fact in held) < 300

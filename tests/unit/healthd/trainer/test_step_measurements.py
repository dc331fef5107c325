"""Sections and reports: from the host at once, from a GPU when it has come that far. The GPU is a stream of our own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from healthd.trainer.beacons.beacon import Beacon, NullBeacon, RankPlacement, read_page
from healthd.trainer.beacons.rank_placement import RankGpu
from healthd.trainer.beacons.step_ring import ENTRIES, LATE_STEPS_MAX, StepRecord, StepSection
from healthd.trainer.framework import device_in_use
from healthd.trainer.step_measurements import StepMeasurements
from vocabulary.clock import ManualClock

pytestmark = pytest.mark.usefixtures("step_writer")


class OnGpu:
    """A number on a GPU: who asks for it at once would wait."""

    device = torch.device("cuda")

    def __init__(self, value: float) -> None:
        self.value = value

    def __float__(self) -> float:
        raise AssertionError("that would have waited for the GPU")


class Copied:
    def __init__(self, value: float) -> None:
        self._value = value

    def read(self) -> float:
        return self._value


class Gpu1:
    """A GPU that works off its stream only when told to: work takes time, marks note it, copies are of their moment."""

    def __init__(self) -> None:
        self.stream: list[Any] = []
        self.now = 0.0
        self.at: dict[int, float] = {}
        self.freed = 0
        self.lost = False

    def gpu(self) -> RankGpu:
        return RankGpu("GPU-1", "0000:3b:00.0", 1)

    def work(self, seconds: float) -> None:
        self.stream.append(seconds)

    def mark(self) -> object:
        if self.lost:
            raise RuntimeError("CUDA error: unspecified launch failure")
        mark = object()
        self.stream.append(mark)
        return mark

    def passed(self, mark: object) -> bool:
        if self.lost:
            raise RuntimeError("CUDA error: unspecified launch failure")
        return id(mark) in self.at

    def between(self, earlier: object, later: object) -> float:
        return self.at[id(later)] - self.at[id(earlier)]

    def free(self, marks: list[object]) -> None:
        self.freed += len(marks)

    def hand_over(self, value: object) -> Copied | None:
        return Copied(value.value) if isinstance(value, OnGpu) else None

    def catch_up(self) -> None:
        for item in self.stream:
            if isinstance(item, float):
                self.now += item
            else:
                self.at[id(item)] = self.now
        self.kept, self.stream = [*getattr(self, "kept", []), *self.stream], []


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def beacon(tmp_path: Path, clock: ManualClock) -> Iterator[Beacon]:
    tmp_path.chmod(0o700)
    made = Beacon.create(str(tmp_path), RankPlacement("j", 1, 0, 1, 0, "n1"), clock)
    made.begin_step(0)
    yield made
    made.close()


@pytest.fixture
def measures(beacon: Beacon, clock: ManualClock) -> StepMeasurements:
    return StepMeasurements(beacon, clock.monotonic)


def newest(beacon: Beacon) -> StepRecord:
    return read_page(beacon.path).steps(1)[0]


def test_a_section_within_another_is_not_the_outer_ones_time(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    with measures.sections["backward"]:
        clock.advance(1.0)
        with measures.sections["communication"]:
            clock.advance(0.25)
            assert read_page(beacon.path).section_name == "communication"
        clock.advance(0.5)
        view = read_page(beacon.path)
        assert (view.section_name, view.state.at) == ("backward", clock.wall() - 0.5)
    clock.advance(8.0)
    with measures.sections["backward"]:
        clock.advance(0.125)
    assert read_page(beacon.path).state.section is StepSection.NONE
    measures.end()

    step = newest(beacon)
    assert step.sections == {"backward": 1.625, "communication": 0.25}
    assert step.seconds == 9.875
    assert (step.on_device, step.awaited) == (False, False)


def test_the_rest_of_a_backward_pass_may_be_communication(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    measures.rest_is_communication()
    with measures.sections["other"]:
        with measures.sections["backward"]:
            clock.advance(1.0)
            measures.rest_is_communication()
            clock.advance(0.25)
        assert read_page(beacon.path).section_name == "other"
        clock.advance(4.0)
    with measures.sections["forward"]:
        clock.advance(2.0)
    measures.end()

    assert newest(beacon).sections == {"backward": 1.0, "communication": 0.25, "other": 4.0, "forward": 2.0}


def test_sections_that_end_in_no_order_stop_nothing(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    """As generators may end them."""
    forward, data = measures.sections["forward"], measures.sections["data"]
    data.__exit__(None, None, None)
    forward.__enter__()
    data.__enter__()
    clock.advance(1.0)
    forward.__exit__(None, None, None)
    data.__exit__(None, None, None)
    measures.end()

    assert newest(beacon).sections == {"data": 1.0, "forward": 0.0}
    assert read_page(beacon.path).section_name == ""


def test_a_dead_ranks_page_says_which_section_it_died_in(beacon: Beacon, measures: StepMeasurements) -> None:
    measures.sections["communication"].__enter__()

    view = read_page(beacon.path)
    assert (view.state.phase.name, view.section_name) == ("STEP", "communication")


def test_data_read_between_steps_is_the_next_steps(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    beacon.end_step()
    with measures.sections["data"]:
        clock.advance(2.0)
    beacon.begin_step(1)
    clock.advance(1.0)
    measures.end()

    assert (newest(beacon).seconds, newest(beacon).sections) == (1.0, {"data": 2.0})


def test_a_step_inherits_nothing(beacon: Beacon, measures: StepMeasurements, clock: ManualClock) -> None:
    with measures.sections["forward"]:
        clock.advance(1.0)
    measures.report(1.0, 2.0, 3)
    measures.end()
    assert measures.touched == 0
    beacon.begin_step(1)
    measures.report(5.0, None, None)
    measures.end()

    assert newest(beacon)._replace(started_at=0.0) == StepRecord(1, 0.0, 0.0, {}, 5.0)


def test_a_section_that_there_is_none_of_is_other_and_warned_of_once(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("evaluation", "logging"):
        with measures.unknown(name):
            clock.advance(1.0)
    measures.end()

    assert newest(beacon).sections == {"other": 2.0}
    assert len(caplog.records) == 1
    assert "section 'evaluation' is counted as 'other'; there are data, forward" in caplog.text


@pytest.mark.parametrize("value", [2.5, torch.tensor(2.5), torch.tensor([2.5], requires_grad=True)])
def test_numbers_and_tensors_on_the_host_are_there_at_once(
    beacon: Beacon, measures: StepMeasurements, value: Any
) -> None:
    measures.report(value, value, 4096)
    measures.end()

    assert newest(beacon)[4:7] == (2.5, 2.5, 4096)


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (("high", None, None), "loss not reported, ValueError"),
        ((None, torch.ones(3), None), "grad_norm not reported, ValueError"),
        ((10**400, None, None), "loss not reported, OverflowError"),
        ((None, None, -1), "tokens not reported: -1.0 is not a count"),
        ((None, None, math.nan), "tokens not reported: nan is not a count"),
        ((None, None, 2**63), "is not a count"),
        ((OnGpu(1.0), None, None), "is on a device that cannot return it without waiting"),
    ],
)
def test_what_is_no_number_costs_one_warning(
    beacon: Beacon,
    measures: StepMeasurements,
    report: tuple[Any, Any, Any],
    text: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(3):
        measures.report(*report)
        measures.end()

    assert newest(beacon)[4:7] == (None, None, None)
    assert len(caplog.records) == 1
    assert text in caplog.text


def test_a_loss_that_is_not_finite_is_told_as_it_is(beacon: Beacon, measures: StepMeasurements) -> None:
    measures.report(math.inf, math.nan, None)
    measures.end()

    step = newest(beacon)
    assert step.loss == math.inf
    assert step.grad_norm is not None
    assert math.isnan(step.grad_norm)


def one_step(measures: StepMeasurements, gpu: Gpu1, clock: ManualClock) -> None:
    """The host gives work in a microsecond and is done."""
    with measures.sections["forward"]:
        gpu.work(1.0)
        clock.advance(1e-6)
    clock.advance(1e-6)
    with measures.sections["backward"]:
        gpu.work(2.0)
        with measures.sections["communication"]:
            gpu.work(0.5)
        gpu.work(0.25)
    clock.advance(1.0)
    gpu.work(4.0)
    with measures.sections["optimizer"]:
        gpu.work(0.125)
    measures.report(OnGpu(2.5), OnGpu(math.nan), OnGpu(512.0))  # type: ignore[arg-type]  # a float is asked of it later
    measures.end()


def test_a_gpus_times_and_numbers_come_when_it_is_there(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    gpu = Gpu1()
    measures.use(gpu)
    one_step(measures, gpu, clock)

    assert newest(beacon)[3:] == ({}, None, None, None, False, True)

    gpu.catch_up()
    measures.write_arrived()

    step = newest(beacon)
    assert step.sections == {"forward": 1.0, "backward": 2.25, "communication": 0.5, "optimizer": 0.125}
    assert (step.loss, step.tokens, step.on_device, step.awaited) == (2.5, 512, True, False)
    assert step.grad_norm is not None
    assert math.isnan(step.grad_norm)
    assert gpu.freed == 8, "sections that follow at once share a mark; one more lies behind the numbers"


def test_steps_are_completed_in_order_while_the_host_runs_ahead(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    gpu = Gpu1()
    measures.use(gpu)
    for step in range(6):
        beacon.begin_step(step)
        if step == 4:
            gpu.catch_up()
        one_step(measures, gpu, clock)

    assert [step.awaited for step in read_page(beacon.path).steps()] == [False] * 4 + [True] * 2


def test_what_a_gpu_never_hands_over_is_given_up(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    gpu = Gpu1()
    measures.use(gpu)
    for step in range(LATE_STEPS_MAX + 3):
        beacon.begin_step(step)
        one_step(measures, gpu, clock)

    awaited = [step.awaited for step in read_page(beacon.path).steps()]
    assert awaited == [False] * 3 + [True] * LATE_STEPS_MAX


def test_numbers_that_come_after_the_ring_has_turned_go_nowhere(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock
) -> None:
    gpu = Gpu1()
    measures.use(gpu)
    one_step(measures, gpu, clock)
    for step in range(1, ENTRIES + 1):
        beacon.begin_step(step)
        beacon.end_step()
    gpu.catch_up()
    measures.write_arrived()

    assert [step.step for step in read_page(beacon.path).steps()] == list(range(1, ENTRIES + 1))


def test_a_lost_gpu_costs_one_warning_and_training_goes_on(
    beacon: Beacon, measures: StepMeasurements, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = Gpu1()
    measures.use(gpu)
    one_step(measures, gpu, clock)
    beacon.begin_step(1)
    measures.report(OnGpu(1.0), None, None)  # type: ignore[arg-type]  # a float is asked of it later
    gpu.lost = True
    measures.write_arrived()
    measures.end()
    for step in range(2, 5):
        beacon.begin_step(step)
        with measures.sections["forward"]:
            clock.advance(1.0)
        measures.report(1.0, None, None)
        measures.end()

    records = read_page(beacon.path).steps()
    assert [record.awaited for record in records] == [False] * 5
    assert [record.loss for record in records] == [None, None, 1.0, 1.0, 1.0]
    assert records[-1].sections == {"forward": 1.0}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "training continues" in caplog.text


def test_without_a_page_nothing_is_asked_of_anybody(clock: ManualClock) -> None:
    measures = StepMeasurements(NullBeacon(), clock.monotonic)
    with measures.sections["forward"]:
        measures.report(OnGpu(1.0), None, None)  # type: ignore[arg-type]  # must not be looked at
    measures.end()


def test_no_gpu_is_in_use_here() -> None:
    if torch.cuda.is_initialized():
        pytest.skip("this process has started CUDA")
    assert device_in_use() is None

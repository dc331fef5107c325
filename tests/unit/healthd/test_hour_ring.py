"""The ring of the last hour: what a bucket says of what was read in it, and how little it takes to keep and to tell."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from healthd.collectors.pressure import PressureSample, PressureStall
from healthd.findings.facts import Moment
from healthd.samples.nvml import GpuReading, Link, Sweep
from healthd.samples.source import SourceReading, SourceState
from healthd.telemetry.hour_ring import GPU_COLUMNS, HOST_COLUMNS, BucketAggregation, HourBuckets, HourColumn, HourRing
from vocabulary.messages.telemetry_messages import (
    BLOCKS_MAX,
    BUCKET_S,
    BUCKETS,
    GPU_SERIES,
    HOST,
    HOST_SERIES,
    TELEMETRY_BYTES_MAX,
    TelemetryPart,
    read_part,
)
from vocabulary.messages.wire import Gpu, encode_message

WALL = 1_700_000_000.0
HOUR_S = BUCKETS * BUCKET_S
BYTES_MAX = 1 << 20
LINKS = tuple(Link(n, crc_errors=2**40 + n, replay_errors=1, recovery_errors=1) for n in range(18))


def gpus(count: int) -> dict[int, Gpu]:
    return {index: Gpu(index, f"GPU-{index}", f"0000:{0x10 + index:02x}:00.0") for index in range(count)}


def at(seconds: float) -> Moment:
    return Moment(WALL + seconds, 1_000_000 * BUCKET_S + seconds)


def feed(ring: HourRing, seconds: float, *readings: GpuReading) -> None:
    ring.take_sweep(Sweep(WALL + seconds, 0.01, readings), gpus(64), at(seconds))


def told(ring: HourRing, seconds: float, back_s: float = HOUR_S) -> dict[tuple[str, str], list[float | None]]:
    part = ring.part(at(seconds).monotonic, back_s)
    assert read_part(encode_message(part)) == part, "the centre takes all of it"
    return {(block.gpu, name): list(values) for block in part.blocks for name, values in block.columns.items()}


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def full(index: int, temperature_c: int = 60) -> GpuReading:
    return GpuReading(
        index=index, temperature_c=temperature_c, memory_temperature_c=88, power_mw=698_712, power_limit_mw=700_000,
        gpu_percent=99, sm_active_percent=93.25, tensor_active_percent=61.75, dram_active_percent=44.5,
        memory_used_bytes=77_123_456_789, sm_clock_mhz=1980, memory_clock_mhz=2619, ecc_corrected=123_456,
        ecc_uncorrected=1, pcie_width=16, pcie_replays=12_345, links=LINKS, throttle_mask=0x64,
    )  # fmt: skip


def test_every_series_of_the_vocabulary_is_told_and_no_other() -> None:
    ring = HourRing()
    feed(ring, 0, full(3))
    stalls = tuple(PressureStall(resource, 1.5, None, None, None) for resource in ("cpu", "io", "memory"))
    sample = PressureSample(stalls)
    ring.take_source(SourceReading(source="pressure", state=SourceState.PRESENT, at=WALL, sample=sample), at(0))
    found = told(ring, 1)
    assert {name for gpu, name in found if gpu == HOST} == set(HOST_SERIES) == {c.name for c in HOST_COLUMNS}
    assert {name for gpu, name in found if gpu == gpus(8)[3].pci} == set(GPU_SERIES) == {c.name for c in GPU_COLUMNS}


def test_a_bucket_says_the_worst_of_what_was_read_in_it() -> None:
    ring, gpu = HourRing(), gpus(1)[0].pci
    feed(ring, 0, GpuReading(index=0, temperature_c=60, sm_clock_mhz=1980, gpu_percent=100, throttle_mask=0x4))
    feed(ring, 1, GpuReading(index=0, temperature_c=91, sm_clock_mhz=345, throttle_mask=0x40))
    feed(ring, 2, GpuReading(index=0, temperature_c=61, sm_clock_mhz=1980, gpu_percent=0, pcie_replays=7))
    feed(ring, 3, GpuReading(index=0, pcie_replays=0))
    worst = {name: known(values) for (of, name), values in told(ring, 4).items() if of == gpu}
    assert worst == {
        "temperature": [91.0],
        "SM clock": [345.0],
        "utilization": [50.0],
        "throttle reasons": [float(0x44)],
        "PCIe replays": [0.0],
    }


def test_only_what_the_centre_has_not_is_told_again() -> None:
    ring, key = HourRing(), (gpus(1)[0].pci, "temperature")
    for bucket in range(BUCKETS + 10):
        feed(ring, bucket * BUCKET_S, GpuReading(index=0, temperature_c=bucket))
    now = (BUCKETS + 9) * BUCKET_S + 7
    assert known(told(ring, now)[key]) == [float(bucket) for bucket in range(10, BUCKETS + 10)]
    assert known(told(ring, now, BUCKET_S)[key]) == [BUCKETS + 8.0, BUCKETS + 9.0]
    assert known(told(ring, now, 0)[key]) == [BUCKETS + 9.0]
    assert known(told(ring, now, -5.0)[key]) == [BUCKETS + 9.0]
    assert told(ring, now + 2 * HOUR_S) == {}


def test_what_is_read_no_more_is_not_told_again_an_hour_later() -> None:
    ring, gpu = HourRing(), gpus(1)[0].pci
    feed(ring, 0, GpuReading(index=0, temperature_c=60, ecc_uncorrected=1))
    feed(ring, HOUR_S, GpuReading(index=0, temperature_c=61))
    assert {key: known(values) for key, values in told(ring, HOUR_S).items()} == {(gpu, "temperature"): [61.0]}


def test_a_gpu_that_is_lost_tells_no_more_and_its_index_is_not_taken_for_it() -> None:
    ring, before = HourRing(), gpus(2)
    ring.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=1, temperature_c=50),)), before, at(0))
    shifted = {0: before[1]}
    ring.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=0, temperature_c=51),)), shifted, at(BUCKET_S))
    ring.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=9, temperature_c=1),)), shifted, at(BUCKET_S))
    nameless = {0: Gpu(0, "GPU-x", "")}
    ring.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=0, temperature_c=2),)), nameless, at(BUCKET_S))
    assert {key: known(values) for key, values in told(ring, BUCKET_S).items()} == {
        (before[1].pci, "temperature"): [50.0, 51.0]
    }


READING = st.none() | st.integers(0, 2**31 - 1)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 400), READING), min_size=1, max_size=60),
    st.sampled_from(list(BucketAggregation)),
    st.floats(0, 4000),
)
def test_buckets_say_what_a_look_at_all_readings_would(
    steps: list[tuple[float, int | None]], fold: BucketAggregation, back_s: float
) -> None:
    hour, now, readings = HourBuckets([HourColumn("x", "x", fold)]), 1e6, {}
    for pause, value in steps:
        now += pause
        hour.add(int(now // BUCKET_S), [float("nan") if value is None else float(value)])
        if value is not None:
            readings.setdefault(int(now // BUCKET_S), []).append(value)
    of = {
        BucketAggregation.MOST: max, BucketAggregation.LEAST: min, BucketAggregation.LAST: lambda some: some[-1],
        BucketAggregation.MEAN: lambda some: sum(some) / len(some), BucketAggregation.ANY_BIT: any_bit,
    }  # fmt: skip
    newest = int(now // BUCKET_S)
    first = newest - min(int(back_s // BUCKET_S), BUCKETS - 1)
    block = hour.block("gpu", first, newest)
    found = {} if block is None else dict(enumerate(block.columns["x"], block.first))
    wanted = {bucket: of[fold](some) for bucket, some in readings.items() if bucket >= first}
    assert {bucket: value for bucket, value in found.items() if value is not None} == pytest.approx(wanted, abs=0.06)


def any_bit(masks: list[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def test_eight_gpus_fit_whole_and_more_are_told_as_far_as_they_fit() -> None:
    def hour_of(count: int) -> TelemetryPart:
        ring = HourRing()
        for bucket in range(BUCKETS):
            feed(ring, bucket * BUCKET_S, *(full(index) for index in range(count)))
        return ring.part(at(HOUR_S - 1).monotonic, HOUR_S)

    eight, many = hour_of(8), hour_of(32)
    assert {len(values) for block in eight.blocks for values in block.columns.values()} == {BUCKETS}
    assert len(encode_message(eight)) < TELEMETRY_BYTES_MAX
    assert len(many.blocks) == 32
    assert TELEMETRY_BYTES_MAX / 3 < len(encode_message(many)) <= TELEMETRY_BYTES_MAX


def test_it_takes_little_memory_however_many_gpus_come_and_go() -> None:
    tracemalloc.start()
    ring = HourRing()
    for index in range(64):
        feed(ring, index * BUCKET_S, full(index))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = {gpu for gpu, _ in told(ring, 63 * BUCKET_S)}
    assert len(found) == BLOCKS_MAX
    assert gpus(64)[63].pci in found
    assert held < BYTES_MAX

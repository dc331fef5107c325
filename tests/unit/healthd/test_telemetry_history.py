"""The telemetry of the last quarter of an hour and of the last hour: what is kept, and how little it takes."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from healthd.collectors.ethernet import EthernetInterface, EthernetSample
from healthd.collectors.infiniband import IbPort, InfinibandSample
from healthd.collectors.pressure import PressureSample, PressureStall
from healthd.findings.facts import Moment
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import GpuReading, Link, Sweep
from healthd.samples.source import SourceReading, SourceState
from healthd.telemetry.telemetry_columns import EVERY_SWEEP, GPU_COLUMNS, HOST_COLUMNS, BucketAggregation, Column
from healthd.telemetry.telemetry_history import LINES_MAX, SPAN_S, TRACKS_MAX, HourBuckets, TelemetryHistory, Track
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
BYTES_MAX = 2 << 20
LINKS = tuple(Link(n, crc_errors=2**40 + n, replay_errors=1, recovery_errors=1) for n in range(18))


def gpus(count: int) -> dict[int, Gpu]:
    return {index: Gpu(index, f"GPU-{index}", f"0000:{0x10 + index:02x}:00.0") for index in range(count)}


def moment(seconds: float, wall: float = WALL) -> Moment:
    return Moment(wall + seconds, 1_000_000 * BUCKET_S + seconds)


def feed(history: TelemetryHistory, seconds: float, *readings: GpuReading) -> None:
    history.take_sweep(Sweep(WALL + seconds, 0.01, readings), gpus(64), moment(seconds))


def points(history: TelemetryHistory, name: str, component: str, now: Moment) -> list[tuple[float, float]]:
    return [
        point
        for series in history.snapshot(now).series
        if (series.name, series.component) == (name, component)
        for point in series.points
    ]


def buckets(
    history: TelemetryHistory, seconds: float, back_s: float = HOUR_S
) -> dict[tuple[str, str], list[float | None]]:
    part = history.part(moment(seconds).monotonic, back_s)
    assert read_part(encode_message(part)) == part, "the controller takes all of it"
    return {(block.gpu, name): list(values) for block in part.blocks for name, values in block.columns.items()}


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def ib_port(device: str, symbol_errors: int | None = 0) -> IbPort:
    return IbPort(device, "1", "InfiniBand", "ACTIVE", "LinkUp", 400.0, "", "", "", symbol_errors, *[0] * 9)


def port_reading(*ports: IbPort) -> SourceReading:
    return SourceReading(source="infiniband", state=SourceState.PRESENT, at=WALL, sample=InfinibandSample(ports, {}))


def full(index: int, temperature_c: int = 60) -> GpuReading:
    return GpuReading(
        index=index, temperature_c=temperature_c, memory_temperature_c=88, power_mw=698_712, power_limit_mw=700_000,
        gpu_percent=99, sm_active_percent=93.25, tensor_active_percent=61.75, dram_active_percent=44.5,
        memory_used_bytes=77_123_456_789, sm_clock_mhz=1980, memory_clock_mhz=2619, ecc_corrected=123_456,
        ecc_uncorrected=1, pcie_width=16, pcie_replays=12_345, links=LINKS, throttle_mask=0x64,
    )  # fmt: skip


def test_each_value_becomes_a_series_in_its_unit_and_in_wall_time() -> None:
    history = TelemetryHistory()
    feed(history, 0, GpuReading(index=1, temperature_c=61, power_mw=412_345))
    feed(history, 1, GpuReading(index=1, temperature_c=62, gpu_percent=97))
    now = moment(2)
    assert points(history, "temperature", "gpu:GPU-1", now) == [(WALL, 61.0), (WALL + 1, 62.0)]
    assert points(history, "power", "gpu:GPU-1", now) == [(WALL, 412.3)]
    assert points(history, "utilization", "gpu:GPU-1", now) == [(WALL + 1, 97.0)]
    assert {series.name for series in history.snapshot(now).series} == {"temperature", "power", "utilization"}


def test_error_counters_of_links_are_summed_and_keep_every_digit() -> None:
    history = TelemetryHistory()
    links = (Link(0, crc_errors=2**40), Link(1, crc_errors=1), Link(2))
    feed(history, 0, GpuReading(index=0, links=links, pcie_replays=7))
    assert points(history, "NVLink CRC errors", "gpu:GPU-0", moment(0)) == [(WALL, 2.0**40 + 1)]
    assert points(history, "PCIe replays", "gpu:GPU-0", moment(0)) == [(WALL, 7.0)]
    assert points(history, "NVLink replays", "gpu:GPU-0", moment(0)) == []


def test_fabric_ports_are_kept_and_other_sources_are_not() -> None:
    history = TelemetryHistory()
    history.take_source(port_reading(ib_port("mlx5_0", 9)), moment(0))
    interface = EthernetInterface("eth0", "", "up", 100_000, 3, None, 0, 0, 0)
    ethernet = SourceReading(source="ethernet", state=SourceState.PRESENT, at=WALL, sample=EthernetSample((interface,)))
    history.take_source(ethernet, moment(1))
    history.take_source(SourceReading(source="clock", state=SourceState.PRESENT, at=WALL, sample=object()), moment(1))
    history.take_source(SourceReading(source="infiniband", state=SourceState.HUNG, at=WALL), moment(2))
    assert points(history, "symbol errors", "nic_port:mlx5_0/1", moment(2)) == [(WALL, 9.0)]
    assert points(history, "carries traffic", "nic_port:eth0", moment(2)) == [(WALL + 1, 1.0)]
    assert points(history, "receive errors", "nic_port:eth0", moment(2)) == []


def test_a_step_of_the_wall_clock_tears_no_series() -> None:
    history = TelemetryHistory()
    for second in range(3):
        feed(history, second, GpuReading(index=0, temperature_c=50 + second))
    stepped = moment(3, wall=WALL - 7200)
    history.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=0, temperature_c=53),)), gpus(1), stepped)
    found = points(history, "temperature", "gpu:GPU-0", stepped)
    assert found == [(WALL - 7200 + second, 50.0 + second) for second in range(4)]


def test_a_lost_gpu_has_no_more_points_and_says_nothing_of_its_siblings() -> None:
    history = TelemetryHistory()
    feed(history, 0, GpuReading(index=0, temperature_c=50), GpuReading(index=1, temperature_c=51))
    feed(history, 1, GpuReading(index=0, lost=True), GpuReading(index=1, temperature_c=52))
    feed(history, 1, GpuReading(index=99, temperature_c=1))
    assert len(points(history, "temperature", "gpu:GPU-0", moment(2))) == 1
    assert len(points(history, "temperature", "gpu:GPU-1", moment(2))) == 2


def test_what_is_older_than_the_span_is_not_shown() -> None:
    history = TelemetryHistory()
    feed(history, 0, GpuReading(index=0, temperature_c=1))
    feed(history, SPAN_S, GpuReading(index=0, temperature_c=2))
    assert len(points(history, "temperature", "gpu:GPU-0", moment(SPAN_S + 0.5))) == 1
    assert points(history, "temperature", "gpu:GPU-0", moment(2 * SPAN_S + 1)) == []


def test_it_says_since_when_it_listens_until_that_is_long_ago() -> None:
    history = TelemetryHistory()
    assert history.snapshot(moment(0)).began_at == WALL
    history.take_kernel(KernelRecord("b", 1, WALL, 0, "a line"), moment(5))
    assert history.snapshot(moment(10)).began_at == WALL + 5
    assert history.snapshot(moment(SPAN_S + 6)).began_at is None


def test_the_newest_kernel_lines_are_kept_each_cut() -> None:
    history = TelemetryHistory()
    for number in range(LINES_MAX + 10):
        history.take_kernel(KernelRecord("b", number, WALL + number, 1, f"{number} " + "x" * 1000), moment(number))
    lines = history.snapshot(moment(LINES_MAX)).kernel_lines
    assert [line.seq for line in lines] == list(range(10, LINES_MAX + 10))
    assert {len(line.text) for line in lines} == {500}
    assert lines[0].facility == 1


@given(st.lists(st.floats(min_value=0.0, max_value=30.0), max_size=2500))
def test_a_track_never_loses_its_newest_row_nor_its_span(pauses: list[float]) -> None:
    track, now, times = Track(GPU_COLUMNS[:4], EVERY_SWEEP), 0.0, []
    for pause in pauses:
        now += pause
        track.add(now, [now, 0.0, 0.0, 0.0])
        times.append(now)
    kept = list(track.copy()[0])
    apart = SPAN_S / EVERY_SWEEP.capacity
    assert kept == sorted(kept)
    assert kept[-1:] == times[-1:]
    assert set(kept) <= set(times)
    assert all(b - a >= apart for a, b in itertools.pairwise(kept[:-1]))
    if times and times[-1] - times[0] >= SPAN_S and max(pauses[1:]) < apart:
        assert kept[-1] - kept[0] >= SPAN_S - 2 * apart


def test_ports_that_come_under_ever_new_names_fill_no_memory() -> None:
    history = TelemetryHistory()
    for number in range(3 * TRACKS_MAX):
        history.take_source(port_reading(ib_port(f"port{number}"), ib_port("steady")), moment(number))
    components = {series.component for series in history.snapshot(moment(3 * TRACKS_MAX)).series}
    assert len(components) == TRACKS_MAX
    assert "nic_port:steady/1" in components


def test_eight_gpus_and_their_ports_take_less_than_two_mebibytes() -> None:
    def fill() -> TelemetryHistory:
        history = TelemetryHistory()
        for second in range(1200):
            feed(history, second, *(full(index) for index in range(8)))
            history.take_source(port_reading(*(ib_port(f"mlx5_{n}") for n in range(10))), moment(second))
            text = f"{second:04d} " + "k" * 600
            history.take_kernel(KernelRecord("b", second, WALL, 0, text), moment(second))
        return history

    tracemalloc.start()
    history = fill()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert history.snapshot(moment(1200)).series
    assert held < BYTES_MAX


def test_every_series_of_the_vocabulary_is_kept_and_no_other() -> None:
    history = TelemetryHistory()
    feed(history, 0, full(3))
    stalls = tuple(PressureStall(resource, 1.5, None, None, None) for resource in ("cpu", "io", "memory"))
    sample = PressureSample(stalls)
    history.take_source(SourceReading(source="pressure", state=SourceState.PRESENT, at=WALL, sample=sample), moment(0))
    found = buckets(history, 1)
    assert {name for gpu, name in found if gpu == HOST} == set(HOST_SERIES) == {c.name for c in HOST_COLUMNS}
    assert {name for gpu, name in found if gpu == gpus(8)[3].pci} == set(GPU_SERIES) == {c.name for c in GPU_COLUMNS}


def test_both_resolutions_say_the_same_of_one_sweep() -> None:
    history = TelemetryHistory()
    feed(history, 0, full(3))
    singly = {series.name: (series.points[0][1], series.unit) for series in history.snapshot(moment(0)).series}
    hour = {name: (values[-1], GPU_SERIES[name].unit) for (_, name), values in buckets(history, 0).items()}
    assert singly == {column.name: hour[column.name] for column in GPU_COLUMNS if column.tier}
    assert len(singly) == 11


def test_a_bucket_says_the_worst_of_what_was_read_in_it() -> None:
    history, gpu = TelemetryHistory(), gpus(1)[0].pci
    feed(history, 0, GpuReading(index=0, temperature_c=60, sm_clock_mhz=1980, gpu_percent=100, throttle_mask=0x4))
    feed(history, 1, GpuReading(index=0, temperature_c=91, sm_clock_mhz=345, throttle_mask=0x40))
    feed(history, 2, GpuReading(index=0, temperature_c=61, sm_clock_mhz=1980, gpu_percent=0, pcie_replays=7))
    feed(history, 3, GpuReading(index=0, pcie_replays=0))
    worst = {name: known(values) for (of, name), values in buckets(history, 4).items() if of == gpu}
    assert worst == {
        "temperature": [91.0],
        "SM clock": [345.0],
        "utilization": [50.0],
        "throttle reasons": [float(0x44)],
        "PCIe replays": [0.0],
    }


def test_only_what_the_controller_lacks_is_sent_again() -> None:
    history, key = TelemetryHistory(), (gpus(1)[0].pci, "temperature")
    for bucket in range(BUCKETS + 10):
        feed(history, bucket * BUCKET_S, GpuReading(index=0, temperature_c=bucket))
    now = (BUCKETS + 9) * BUCKET_S + 7
    assert known(buckets(history, now)[key]) == [float(bucket) for bucket in range(10, BUCKETS + 10)]
    assert known(buckets(history, now, BUCKET_S)[key]) == [BUCKETS + 8.0, BUCKETS + 9.0]
    assert known(buckets(history, now, 0)[key]) == [BUCKETS + 9.0]
    assert known(buckets(history, now, -5.0)[key]) == [BUCKETS + 9.0]
    assert buckets(history, now + 2 * HOUR_S) == {}


def test_what_is_no_longer_read_is_not_sent_an_hour_later() -> None:
    history, gpu = TelemetryHistory(), gpus(1)[0].pci
    feed(history, 0, GpuReading(index=0, temperature_c=60, ecc_uncorrected=1))
    feed(history, HOUR_S, GpuReading(index=0, temperature_c=61))
    assert {key: known(values) for key, values in buckets(history, HOUR_S).items()} == {(gpu, "temperature"): [61.0]}


def test_the_hour_of_a_lost_gpu_ends_and_its_index_is_not_taken_for_it() -> None:
    history, before = TelemetryHistory(), gpus(2)
    history.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=1, temperature_c=50),)), before, moment(0))
    shifted = {0: before[1]}
    history.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=0, temperature_c=51),)), shifted, moment(BUCKET_S))
    history.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=9, temperature_c=1),)), shifted, moment(BUCKET_S))
    nameless = {0: Gpu(0, "GPU-x", "")}
    history.take_sweep(Sweep(WALL, 0.01, (GpuReading(index=0, temperature_c=2),)), nameless, moment(BUCKET_S))
    assert {key: known(values) for key, values in buckets(history, BUCKET_S).items()} == {
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
    hour, now, readings = HourBuckets([Column("x", "", "x", fold)]), 1e6, {}
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


def test_eight_gpus_fit_whole_and_more_are_sent_as_far_as_they_fit() -> None:
    def hour_of(count: int) -> TelemetryPart:
        history = TelemetryHistory()
        for bucket in range(BUCKETS):
            feed(history, bucket * BUCKET_S, *(full(index) for index in range(count)))
        return history.part(moment(HOUR_S - 1).monotonic, HOUR_S)

    eight, many = hour_of(8), hour_of(32)
    assert {len(values) for block in eight.blocks for values in block.columns.values()} == {BUCKETS}
    assert len(encode_message(eight)) < TELEMETRY_BYTES_MAX
    assert len(many.blocks) == 32
    assert TELEMETRY_BYTES_MAX / 3 < len(encode_message(many)) <= TELEMETRY_BYTES_MAX


def test_it_takes_little_memory_however_many_gpus_come_and_go() -> None:
    tracemalloc.start()
    history = TelemetryHistory()
    for index in range(64):
        feed(history, index * BUCKET_S, full(index))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found = {gpu for gpu, _ in buckets(history, 63 * BUCKET_S)}
    assert len(found) == BLOCKS_MAX
    assert gpus(64)[63].pci in found
    assert held < 2 * BYTES_MAX

"""The ring of the last quarter of an hour: what it keeps, what it lets go, and how little it takes."""

from __future__ import annotations

import itertools
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from healthd.collectors.ethernet import EthernetInterface, EthernetSample
from healthd.collectors.infiniband import IbPort, InfinibandSample
from healthd.findings.facts import Moment
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import GpuReading, Link, Sweep
from healthd.samples.source import SourceReading, SourceState
from healthd.telemetry.telemetry_ring import EVERY_SWEEP, LINES_MAX, SPAN_S, TRACKS_MAX, TelemetryRing, Track
from vocabulary.messages.wire import Gpu

WALL = 1_700_000_000.0
GPUS = {index: Gpu(index, f"GPU-{index}", f"0000:{0x10 + index:02x}:00.0") for index in range(8)}
BYTES_MAX = 2 << 20


def moment(seconds: float, wall: float = WALL) -> Moment:
    return Moment(wall + seconds, 1000.0 + seconds)


def sweep(*readings: GpuReading, at: float = 0.0) -> Sweep:
    return Sweep(WALL + at, 0.01, readings)


def points(ring: TelemetryRing, name: str, component: str, now: Moment) -> list[tuple[float, float]]:
    return [
        point
        for series in ring.snapshot(now).series
        if (series.name, series.component) == (name, component)
        for point in series.points
    ]


def ib_port(device: str, symbol_errors: int | None = 0) -> IbPort:
    return IbPort(device, "1", "InfiniBand", "ACTIVE", "LinkUp", 400.0, "", "", "", symbol_errors, *[0] * 9)


def port_reading(*ports: IbPort) -> SourceReading:
    return SourceReading(source="infiniband", state=SourceState.PRESENT, at=WALL, sample=InfinibandSample(ports, {}))


def test_each_value_becomes_a_series_in_its_unit_and_in_wall_time() -> None:
    ring = TelemetryRing()
    ring.take_sweep(sweep(GpuReading(index=1, temperature_c=61, power_mw=412_345)), GPUS, moment(0))
    ring.take_sweep(sweep(GpuReading(index=1, temperature_c=62, gpu_percent=97)), GPUS, moment(1))
    now = moment(2)
    assert points(ring, "temperature", "gpu:GPU-1", now) == [(WALL, 61.0), (WALL + 1, 62.0)]
    assert points(ring, "power", "gpu:GPU-1", now) == [(WALL, 412.3)]
    assert points(ring, "utilization", "gpu:GPU-1", now) == [(WALL + 1, 97.0)]
    assert {series.name for series in ring.snapshot(now).series} == {"temperature", "power", "utilization"}


def test_error_counters_of_links_are_summed_and_keep_every_digit() -> None:
    ring = TelemetryRing()
    links = (Link(0, crc_errors=2**40), Link(1, crc_errors=1), Link(2))
    ring.take_sweep(sweep(GpuReading(index=0, links=links, pcie_replays=7)), GPUS, moment(0))
    assert points(ring, "NVLink CRC errors", "gpu:GPU-0", moment(0)) == [(WALL, 2.0**40 + 1)]
    assert points(ring, "PCIe replays", "gpu:GPU-0", moment(0)) == [(WALL, 7.0)]
    assert points(ring, "NVLink replays", "gpu:GPU-0", moment(0)) == []


def test_fabric_ports_are_kept_and_other_sources_are_not() -> None:
    ring = TelemetryRing()
    ring.take_source(port_reading(ib_port("mlx5_0", 9)), moment(0))
    interface = EthernetInterface("eth0", "", "up", 100_000, 3, None, 0, 0, 0)
    ethernet = SourceReading(source="ethernet", state=SourceState.PRESENT, at=WALL, sample=EthernetSample((interface,)))
    ring.take_source(ethernet, moment(1))
    ring.take_source(SourceReading(source="clock", state=SourceState.PRESENT, at=WALL, sample=object()), moment(1))
    ring.take_source(SourceReading(source="infiniband", state=SourceState.HUNG, at=WALL), moment(2))
    assert points(ring, "symbol errors", "nic_port:mlx5_0/1", moment(2)) == [(WALL, 9.0)]
    assert points(ring, "carries traffic", "nic_port:eth0", moment(2)) == [(WALL + 1, 1.0)]
    assert points(ring, "receive errors", "nic_port:eth0", moment(2)) == []


def test_a_step_of_the_wall_clock_tears_no_series() -> None:
    ring = TelemetryRing()
    for second in range(3):
        ring.take_sweep(sweep(GpuReading(index=0, temperature_c=50 + second)), GPUS, moment(second))
    stepped = moment(3, wall=WALL - 7200)
    ring.take_sweep(sweep(GpuReading(index=0, temperature_c=53)), GPUS, stepped)
    found = points(ring, "temperature", "gpu:GPU-0", stepped)
    assert found == [(WALL - 7200 + second, 50.0 + second) for second in range(4)]


def test_a_lost_gpu_has_no_more_points_and_says_nothing_of_its_siblings() -> None:
    ring = TelemetryRing()
    ring.take_sweep(
        sweep(GpuReading(index=0, temperature_c=50), GpuReading(index=1, temperature_c=51)), GPUS, moment(0)
    )
    ring.take_sweep(sweep(GpuReading(index=0, lost=True), GpuReading(index=1, temperature_c=52)), GPUS, moment(1))
    ring.take_sweep(sweep(GpuReading(index=99, temperature_c=1)), GPUS, moment(1))
    assert len(points(ring, "temperature", "gpu:GPU-0", moment(2))) == 1
    assert len(points(ring, "temperature", "gpu:GPU-1", moment(2))) == 2


def test_what_is_older_than_the_span_is_not_shown() -> None:
    ring = TelemetryRing()
    ring.take_sweep(sweep(GpuReading(index=0, temperature_c=1)), GPUS, moment(0))
    ring.take_sweep(sweep(GpuReading(index=0, temperature_c=2)), GPUS, moment(SPAN_S))
    assert len(points(ring, "temperature", "gpu:GPU-0", moment(SPAN_S + 0.5))) == 1
    assert points(ring, "temperature", "gpu:GPU-0", moment(2 * SPAN_S + 1)) == []


def test_it_says_since_when_it_listens_until_that_is_long_ago() -> None:
    ring = TelemetryRing()
    assert ring.snapshot(moment(0)).began_at == WALL
    ring.take_kernel(KernelRecord("b", 1, WALL, 0, "a line"), moment(5))
    assert ring.snapshot(moment(10)).began_at == WALL + 5
    assert ring.snapshot(moment(SPAN_S + 6)).began_at is None


def test_the_newest_kernel_lines_are_kept_each_cut() -> None:
    ring = TelemetryRing()
    for number in range(LINES_MAX + 10):
        ring.take_kernel(KernelRecord("b", number, WALL + number, 1, f"{number} " + "x" * 1000), moment(number))
    lines = ring.snapshot(moment(LINES_MAX)).kernel_lines
    assert [line.seq for line in lines] == list(range(10, LINES_MAX + 10))
    assert {len(line.text) for line in lines} == {500}
    assert lines[0].facility == 1


@given(st.lists(st.floats(min_value=0.0, max_value=30.0), max_size=2500))
def test_a_track_never_loses_its_newest_row_nor_its_span(pauses: list[float]) -> None:
    track, now, times = Track(EVERY_SWEEP), 0.0, []
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
    ring = TelemetryRing()
    for number in range(3 * TRACKS_MAX):
        ring.take_source(port_reading(ib_port(f"port{number}"), ib_port("steady")), moment(number))
    components = {series.component for series in ring.snapshot(moment(3 * TRACKS_MAX)).series}
    assert len(components) == TRACKS_MAX
    assert "nic_port:steady/1" in components


def test_eight_gpus_and_their_ports_take_less_than_two_mebibytes() -> None:
    def fill() -> TelemetryRing:
        ring = TelemetryRing()
        links = tuple(Link(n, crc_errors=1, replay_errors=1, recovery_errors=1) for n in range(18))
        for second in range(1200):
            readings = (
                GpuReading(
                    index=index,
                    temperature_c=60,
                    power_mw=700_000,
                    sm_clock_mhz=1980,
                    throttle_mask=4,
                    memory_temperature_c=80,
                    gpu_percent=99,
                    pcie_replays=0,
                    links=links,
                )
                for index in range(8)
            )
            ring.take_sweep(sweep(*readings), GPUS, moment(second))
            ring.take_source(port_reading(*(ib_port(f"mlx5_{n}") for n in range(10))), moment(second))
            text = f"{second:04d} " + "k" * 600
            ring.take_kernel(KernelRecord("b", second, WALL, 0, text), moment(second))
        return ring

    tracemalloc.start()
    ring = fill()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ring.snapshot(moment(1200)).series
    assert held < BYTES_MAX

"""The last quarter of an hour of this node, kept in memory for evidence bundles.

Fed from samples that are taken anyway. Times are monotonic, so that a step of the wall clock tears no series; a
snapshot converts them to wall time as of its own instant.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from math import nan
from operator import attrgetter
from typing import NamedTuple, Protocol

from healthd.collectors.ethernet import EthernetSample
from healthd.collectors.infiniband import InfinibandSample
from healthd.findings.facts import Moment
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import Link, Sweep
from healthd.samples.source import SourceReading
from vocabulary.messages.evidence_bundle import TEXT_CHARS_MAX, KernelLine, Series
from vocabulary.messages.wire import Gpu

SPAN_S = 900.0
LINES_MAX = 500
TRACKS_MAX = 128  # bounds memory on a machine that keeps renaming its ports


class Column(NamedTuple):
    """One value of a track: its name, its unit, and the sample's field that holds it, in units of `factor`."""

    name: str
    unit: str
    field: str
    factor: float = 1.0


class Layout(NamedTuple):
    """The columns of one tier of readings. Counters need type `d`: single precision ends at 16 million."""

    columns: tuple[Column, ...]
    capacity: int
    typecode: str = "f"


EVERY_SWEEP = Layout(
    (
        Column("temperature", "°C", "temperature_c"),
        Column("power", "W", "power_mw", 0.001),
        Column("SM clock", "MHz", "sm_clock_mhz"),
        Column("throttle reasons", "bit mask", "throttle_mask"),
    ),
    1024,
)
TEN_SECONDS = Layout(
    (
        Column("memory temperature", "°C", "memory_temperature_c"),
        Column("memory clock", "MHz", "memory_clock_mhz"),
        Column("utilization", "%", "gpu_percent"),
    ),
    128,
)
EVERY_MINUTE = Layout(
    (
        Column("PCIe replays", "since the driver was loaded", "pcie_replays"),
        Column("NVLink CRC errors", "all links", "crc_errors"),
        Column("NVLink replays", "all links", "replay_errors"),
        Column("NVLink recoveries", "all links", "recovery_errors"),
    ),
    32,
    "d",
)
INFINIBAND = Layout(
    (
        Column("rate", "Gb/s", "rate_gbps"),
        *(
            Column(field.replace("_", " "), "counter", field)
            for field in (
                "symbol_errors",
                "link_downed",
                "link_recoveries",
                "receive_errors",
                "transmit_discards",
                "transmit_wait_ticks",
                "out_of_sequence",
                "retransmits",
                "congestion_sent",
                "congestion_handled",
            )
        ),
    ),
    96,
    "d",
)
ETHERNET = Layout(
    (
        Column("carries traffic", "0 or 1", "up"),
        Column("speed", "Mb/s", "speed_mbps"),
        *(
            Column(field.replace("_", " "), "counter", field)
            for field in ("carrier_changes", "receive_errors", "transmit_errors", "crc_errors", "receive_drops")
        ),
    ),
    96,
    "d",
)
GPU_LAYOUTS = (EVERY_SWEEP, TEN_SECONDS, EVERY_MINUTE)
LINK_COUNTERS = frozenset({"crc_errors", "replay_errors", "recovery_errors"})


class ReadColumn(Protocol):
    """Where a column's value comes from."""

    @property
    def field(self) -> str:
        """The sample's field; for a GPU also an error counter that is summed over its links."""

    @property
    def factor(self) -> float:
        """The unit of the field."""


class RowReader:
    """Reads several columns of a sample at once. Kept cheap, because all GPUs are read every second."""

    def __init__(self, columns: Sequence[ReadColumn], *, of_gpu: bool = False) -> None:
        counters = [column.field if of_gpu and column.field in LINK_COUNTERS else "" for column in columns]
        self._read = attrgetter(
            *("links" if counter else column.field for column, counter in zip(columns, counters, strict=True))
        )
        self._columns = tuple(zip((column.factor for column in columns), counters, strict=True))
        self._nothing = (None,) * len(columns)

    def __call__(self, sample: object) -> list[float] | None:
        """Return one value per column, NaN if unknown; None if all are unknown."""
        values = self._read(sample)
        if values == self._nothing:
            return None
        return [
            nan if value is None else _sum_link_counters(value, counter) if counter else float(value) * factor
            for value, (factor, counter) in zip(values, self._columns, strict=True)
        ]


_GPU_ROWS = tuple((number, layout, RowReader(layout.columns, of_gpu=True)) for number, layout in enumerate(GPU_LAYOUTS))
_INFINIBAND_ROW, _ETHERNET_ROW = RowReader(INFINIBAND.columns), RowReader(ETHERNET.columns)


class Track:
    """The newest `capacity` rows of one layout, spaced at least the span divided by the capacity.

    The newest row is always kept: a row too close to the one before it is overwritten by the next.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._times = array("d", [0.0]) * layout.capacity
        self._values = [array(layout.typecode, [nan]) * layout.capacity for _ in layout.columns]
        self._rows = 0  # rows ever begun
        self._apart_s = SPAN_S / layout.capacity

    @property
    def newest(self) -> float:
        """When the last row was added, monotonic."""
        return self._times[(self._rows - 1) % self.layout.capacity]

    def add(self, monotonic: float, row: Sequence[float]) -> None:
        """Add one row; NaN for an unknown value."""
        capacity = self.layout.capacity
        if self._rows > 1:
            newest, elder = (self._times[(self._rows - back) % capacity] for back in (1, 2))
            if newest - elder < self._apart_s:
                self._rows -= 1
        place = self._rows % capacity
        self._times[place] = monotonic
        for values, value in zip(self._values, row, strict=True):
            values[place] = value
        self._rows += 1

    def copy(self) -> tuple[array[float], list[array[float]]]:
        """Return times and columns, oldest row first: only memory copies, so a lock is held briefly."""
        capacity = self.layout.capacity
        if self._rows <= capacity:
            return self._times[: self._rows], [values[: self._rows] for values in self._values]
        at = self._rows % capacity
        return self._times[at:] + self._times[:at], [values[at:] + values[:at] for values in self._values]


class Telemetry(NamedTuple):
    """What the ring held at one instant. `began_at` is when filling began, if that is less than `SPAN_S` ago."""

    at: float
    from_at: float
    began_at: float | None
    series: tuple[Series, ...]
    kernel_lines: tuple[KernelLine, ...]


class TelemetryRing:
    """The ring. Written by the main loop, read by any thread. A sweep of eight GPUs costs some tens of microseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, int], Track] = {}  # by component and the layout's index in its family
        self._lines: deque[KernelLine] = deque(maxlen=LINES_MAX)
        self._began: float | None = None  # monotonic

    def take_sweep(self, sweep: Sweep, by_index: Mapping[int, Gpu], now: Moment) -> None:
        """Add the readings of one sweep. A lost GPU has none, so its series ends."""
        with self._lock:
            for reading in sweep.readings:
                gpu = by_index.get(reading.index)
                if gpu is not None:
                    component = f"gpu:{gpu.uuid or gpu.pci}"
                    for number, layout, read in _GPU_ROWS:
                        self._add(component, number, layout, read(reading), now)

    def take_source(self, reading: SourceReading, now: Moment) -> None:
        """Add a source's reading; only fabric ports are kept."""
        rows: Iterable[tuple[str, Layout, list[float] | None]] = ()
        if isinstance(reading.sample, InfinibandSample):
            rows = [(f"{port.device}/{port.port}", INFINIBAND, _INFINIBAND_ROW(port)) for port in reading.sample.ports]
        elif isinstance(reading.sample, EthernetSample):
            rows = [(interface.name, ETHERNET, _ETHERNET_ROW(interface)) for interface in reading.sample.interfaces]
        with self._lock:
            for name, layout, row in rows:
                self._add(f"nic_port:{name}", 0, layout, row, now)

    def take_kernel(self, record: KernelRecord, now: Moment) -> None:
        """Add one record of the kernel log, whatever its origin."""
        line = KernelLine(record.at, record.text[:TEXT_CHARS_MAX], record.position, record.facility)
        with self._lock:
            self._began = now.monotonic if self._began is None else self._began
            self._lines.append(line)

    def snapshot(self, now: Moment) -> Telemetry:
        """Return everything of the last `SPAN_S`, oldest first; series without any value are left out."""
        with self._lock:
            copies = [(component, track.layout, *track.copy()) for (component, _), track in self._tracks.items()]
            lines, began = tuple(self._lines), self._began
        offset, since = now.wall - now.monotonic, now.monotonic - SPAN_S
        series = [
            Series(column.name, column.unit, component, points)
            for component, layout, times, columns in copies
            for column, values in zip(layout.columns, columns, strict=True)
            if (points := _select_points(times, values, since, offset))
        ]
        young = began is None or began > since
        began_at = (now.wall if began is None else began + offset) if young else None
        return Telemetry(now.wall, now.wall - SPAN_S, began_at, tuple(series), lines)

    def _add(self, component: str, number: int, layout: Layout, row: Sequence[float] | None, now: Moment) -> None:
        self._began = now.monotonic if self._began is None else self._began
        if row is None or all(value != value for value in row):  # noqa: PLR0124 - only NaN is unlike itself
            return  # this tier was not read
        track = self._tracks.get((component, number))
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                del self._tracks[min(self._tracks, key=lambda key: self._tracks[key].newest)]
            track = self._tracks[component, number] = Track(layout)
        track.add(now.monotonic, row)


def _sum_link_counters(links: Iterable[Link] | None, field: str) -> float:
    counts = [count for link in links or () if (count := getattr(link, field)) is not None]
    return float(sum(counts)) if counts else nan


def _select_points(
    times: Iterable[float], values: Iterable[float], since: float, offset: float
) -> tuple[tuple[float, float], ...]:
    return tuple(
        (round(time + offset, 3), _round_single_precision(value))
        for time, value in zip(times, values, strict=True)
        if time >= since and value == value  # noqa: PLR0124 - only NaN is unlike itself
    )


def _round_single_precision(value: float) -> float:
    """Drop the digits that single precision does not hold."""
    return round(value, 1)

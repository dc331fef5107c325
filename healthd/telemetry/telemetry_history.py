"""What this node measured recently, kept in memory at two resolutions and fed from samples that are taken anyway.

Evidence bundles get every second of the last quarter of an hour. Times are monotonic, so that a step of the wall clock
tears no series; a snapshot converts them to wall time as of its own instant. The controller's telemetry requests get the
last hour in half-minute buckets, twenty kilobytes per GPU: each keeps the worst value, so that a peak of one second is
visible an hour later.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isnan, nan
from operator import itemgetter
from typing import Any, NamedTuple

from healthd.collectors.ethernet import EthernetSample
from healthd.collectors.infiniband import InfinibandSample
from healthd.collectors.pressure import PressureSample
from healthd.findings.facts import Moment
from healthd.samples.kernel_record import KernelRecord
from healthd.samples.nvml import Sweep
from healthd.samples.source import SourceReading
from healthd.telemetry.telemetry_columns import (
    ETHERNET,
    EVERY_MINUTE,
    EVERY_SWEEP,
    FABRIC,
    GPU_COLUMNS,
    HOST_COLUMNS,
    INFINIBAND,
    PRESSURES,
    TEN_SECONDS,
    BucketAggregation,
    Column,
    RowReader,
    Tier,
)
from vocabulary.messages.evidence_bundle import TEXT_CHARS_MAX, KernelLine, Series
from vocabulary.messages.telemetry_messages import (
    BLOCKS_MAX,
    BUCKET_S,
    BUCKETS,
    HOST,
    TELEMETRY_BYTES_MAX,
    TelemetryBlock,
    TelemetryPart,
    bucket_of,
)
from vocabulary.messages.wire import Gpu, encode_message

SPAN_S = 900.0
LINES_MAX = 500
TRACKS_MAX = 128  # bounds memory on a machine that keeps renaming its ports

_GPU_ROW, _INFINIBAND_ROW, _ETHERNET_ROW = RowReader(GPU_COLUMNS), RowReader(INFINIBAND), RowReader(ETHERNET)


def _choose_columns(tier: Tier) -> tuple[Tier, tuple[Column, ...], Callable[[Any], tuple[float, ...]]]:
    """The columns of a GPU's tier, and the part of a row that holds them."""
    places = [place for place, column in enumerate(GPU_COLUMNS) if column.tier is tier]
    pick = itemgetter(*places)
    return tier, pick(GPU_COLUMNS), pick


_GPU_TIERS = tuple(_choose_columns(tier) for tier in (EVERY_SWEEP, TEN_SECONDS, EVERY_MINUTE))


class Track:
    """The newest rows of one tier, as many as its capacity, spaced at least the span divided by the capacity.

    The newest row is always kept: a row too close to the one before it is overwritten by the next.
    """

    def __init__(self, columns: Sequence[Column], tier: Tier) -> None:
        self.columns = columns
        self._capacity = tier.capacity
        self._times = array("d", [0.0]) * tier.capacity
        self._values = [array(tier.typecode, [nan]) * tier.capacity for _ in columns]
        self._rows = 0  # rows ever begun
        self._apart_s = SPAN_S / tier.capacity

    @property
    def newest(self) -> float:
        """When the last row was added, monotonic."""
        return self._times[(self._rows - 1) % self._capacity]

    def add(self, monotonic: float, row: Sequence[float]) -> None:
        """Add one row; NaN for an unknown value."""
        capacity = self._capacity
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
        capacity = self._capacity
        if self._rows <= capacity:
            return self._times[: self._rows], [values[: self._rows] for values in self._values]
        at = self._rows % capacity
        return self._times[at:] + self._times[:at], [values[at:] + values[:at] for values in self._values]


class HourBuckets:
    """The buckets of one GPU or of the host in a fixed ring; the oldest is overwritten."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._numbers = array("q", [-1]) * BUCKETS
        self._values = [array("d", [nan]) * BUCKETS for _ in columns]
        self._seen = [0] * len(columns)  # readings in the open bucket, by column
        self.newest = -1

    def add(self, bucket: int, row: Iterable[float]) -> None:
        """Add one reading per column, NaN if there is none. Buckets come in order."""
        place = bucket % BUCKETS
        if self._numbers[place] != bucket:
            self._numbers[place] = self.newest = bucket
            self._seen = [0] * len(self._columns)
            for values in self._values:
                values[place] = nan
        for number, value in enumerate(row):
            if value == value:  # noqa: PLR0124 - only NaN is unlike itself
                values, seen = self._values[number], self._seen[number]
                fold = self._columns[number].fold
                values[place] = _aggregate_value(fold, values[place], value, seen) if seen else value
                self._seen[number] = seen + 1

    def block(self, name: str, first: int, last: int) -> TelemetryBlock | None:
        """Return buckets `first` to `last` without empty columns; None if no column has a value."""
        columns = {}
        for column, values in zip(self._columns, self._values, strict=True):
            told = tuple(self._at(values, bucket) for bucket in range(first, last + 1))
            if any(value is not None for value in told):
                columns[column.name] = told
        return TelemetryBlock(name, first, columns) if columns else None

    def _at(self, values: array[float], bucket: int) -> float | None:
        place = bucket % BUCKETS
        value = values[place]
        return None if self._numbers[place] != bucket or isnan(value) else round(value, 1)


class Telemetry(NamedTuple):
    """What the ring held at one instant. `began_at` is when filling began, if that is less than `SPAN_S` ago."""

    at: float
    from_at: float
    began_at: float | None
    series: tuple[Series, ...]
    kernel_lines: tuple[KernelLine, ...]


class TelemetryHistory:
    """Both resolutions. Written by the main loop, read by any thread. A sweep of eight GPUs costs some tens of microseconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tracks: dict[tuple[str, Tier], Track] = {}  # by component
        self._hours: dict[str, HourBuckets] = {}  # by PCI address: after a GPU is lost, indices move
        self._lines: deque[KernelLine] = deque(maxlen=LINES_MAX)
        self._began: float | None = None  # monotonic

    def take_sweep(self, sweep: Sweep, by_index: Mapping[int, Gpu], now: Moment) -> None:
        """Add the readings of one sweep. A lost GPU has none, so its series end."""
        with self._lock:
            self._begin(now)
            for reading in sweep.readings:
                gpu = by_index.get(reading.index)
                if gpu is None or (row := _GPU_ROW(reading)) is None:
                    continue
                for tier, columns, pick in _GPU_TIERS:
                    self._add_row(f"gpu:{gpu.uuid or gpu.pci}", columns, tier, pick(row), now)
                if gpu.pci:
                    self._hour(gpu.pci, GPU_COLUMNS).add(bucket_of(now.monotonic), row)

    def take_source(self, reading: SourceReading, now: Moment) -> None:
        """Add a source's reading; only fabric ports and the host's pressure are kept."""
        sample = reading.sample
        with self._lock:
            self._begin(now)
            if isinstance(sample, InfinibandSample):
                for port in sample.ports:
                    self._add_row(f"nic_port:{port.device}/{port.port}", INFINIBAND, FABRIC, _INFINIBAND_ROW(port), now)
            elif isinstance(sample, EthernetSample):
                for interface in sample.interfaces:
                    self._add_row(f"nic_port:{interface.name}", ETHERNET, FABRIC, _ETHERNET_ROW(interface), now)
            elif isinstance(sample, PressureSample):
                known = {stall.resource: stall.some_percent for stall in sample.stalls}
                row = [nan if (value := known.get(resource)) is None else value for resource in PRESSURES]
                self._hour(HOST, HOST_COLUMNS).add(bucket_of(now.monotonic), row)

    def take_kernel(self, record: KernelRecord, now: Moment) -> None:
        """Add one record of the kernel log, whatever its origin."""
        line = KernelLine(record.at, record.text[:TEXT_CHARS_MAX], record.position, record.facility)
        with self._lock:
            self._begin(now)
            self._lines.append(line)

    def snapshot(self, now: Moment) -> Telemetry:
        """Return every second of the last `SPAN_S`, oldest first; series without any value are left out."""
        with self._lock:
            copies = [(component, track.columns, *track.copy()) for (component, _), track in self._tracks.items()]
            lines, began = tuple(self._lines), self._began
        offset, since = now.wall - now.monotonic, now.monotonic - SPAN_S
        series = [
            Series(column.name, column.unit, component, points)
            for component, columns, times, rows in copies
            for column, values in zip(columns, rows, strict=True)
            if (points := _select_points(times, values, since, offset))
        ]
        young = began is None or began > since
        began_at = (now.wall if began is None else began + offset) if young else None
        return Telemetry(now.wall, now.wall - SPAN_S, began_at, tuple(series), lines)

    def part(self, now: float, back_s: float) -> TelemetryPart:
        """Return the buckets open in the last `back_s` before `now` (monotonic), as many as one report may carry."""
        newest = bucket_of(now)
        count = min(BUCKETS, newest - bucket_of(now - min(max(back_s, 0.0), BUCKETS * BUCKET_S)) + 1)
        while True:
            with self._lock:
                blocks = [hour.block(name, newest - count + 1, newest) for name, hour in self._hours.items()]
            part = TelemetryPart(round(now, 3), tuple(block for block in blocks if block is not None))
            if count <= 1 or len(encode_message(part)) <= TELEMETRY_BYTES_MAX:
                return part
            count //= 2

    def _hour(self, name: str, columns: Sequence[Column]) -> HourBuckets:
        hour = self._hours.get(name)
        if hour is None:
            if len(self._hours) >= BLOCKS_MAX:
                del self._hours[min(self._hours, key=lambda each: self._hours[each].newest)]
            hour = self._hours[name] = HourBuckets(columns)
        return hour

    def _begin(self, now: Moment) -> None:
        self._began = now.monotonic if self._began is None else self._began

    def _add_row(
        self, component: str, columns: Sequence[Column], tier: Tier, row: Sequence[float] | None, now: Moment
    ) -> None:
        if row is None or all(value != value for value in row):  # noqa: PLR0124 - only NaN is unlike itself
            return  # this tier was not read
        track = self._tracks.get((component, tier))
        if track is None:
            if len(self._tracks) >= TRACKS_MAX:
                del self._tracks[min(self._tracks, key=lambda key: self._tracks[key].newest)]
            track = self._tracks[component, tier] = Track(columns, tier)
        track.add(now.monotonic, row)


def _aggregate_value(fold: BucketAggregation | None, kept: float, value: float, seen: int) -> float:
    if fold is BucketAggregation.MOST:
        return max(kept, value)
    if fold is BucketAggregation.LEAST:
        return min(kept, value)
    if fold is BucketAggregation.MEAN:
        return kept + (value - kept) / (seen + 1)
    return float(int(kept) | int(value)) if fold is BucketAggregation.ANY_BIT else value


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

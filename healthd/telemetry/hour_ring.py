"""The last hour of each GPU and of the host, in half-minute buckets, for the controller's telemetry requests.

Fed from samples that are taken anyway. Each bucket keeps the worst value, so that a peak of one second is visible an
hour later. Twenty kilobytes per GPU; the evidence ring keeps every second, but for a shorter time.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import isnan, nan
from typing import NamedTuple

from healthd.collectors.pressure import PressureSample
from healthd.findings.facts import Moment
from healthd.samples.nvml import Sweep
from healthd.samples.source import SourceReading
from healthd.telemetry.telemetry_ring import RowReader
from vocabulary.messages.telemetry_messages import (
    BLOCKS_MAX,
    BUCKET_S,
    BUCKETS,
    HOST,
    TELEMETRY_BYTES_MAX,
    THROTTLE,
    TelemetryBlock,
    TelemetryPart,
    bucket_of,
)
from vocabulary.messages.wire import Gpu, encode_message


class BucketAggregation(Enum):
    """How a bucket combines several readings."""

    MOST = "most"
    LEAST = "least"
    MEAN = "mean"
    LAST = "last"  # of a counter, also across a reset
    ANY_BIT = "any bit"


class HourColumn(NamedTuple):
    """One series: its name in the vocabulary, the sample's field in units of `factor`, and the aggregation."""

    name: str
    field: str
    fold: BucketAggregation
    factor: float = 1.0


GPU_COLUMNS = (
    HourColumn("temperature", "temperature_c", BucketAggregation.MOST),
    HourColumn("memory temperature", "memory_temperature_c", BucketAggregation.MOST),
    HourColumn("power", "power_mw", BucketAggregation.MOST, 1e-3),
    HourColumn("power limit", "power_limit_mw", BucketAggregation.LEAST, 1e-3),
    HourColumn("utilization", "gpu_percent", BucketAggregation.MEAN),
    HourColumn("SM active", "sm_active_percent", BucketAggregation.MEAN),
    HourColumn("tensor active", "tensor_active_percent", BucketAggregation.MEAN),
    HourColumn("memory bandwidth active", "dram_active_percent", BucketAggregation.MEAN),
    HourColumn("memory used", "memory_used_bytes", BucketAggregation.MOST, 1 / (1 << 20)),
    HourColumn("SM clock", "sm_clock_mhz", BucketAggregation.LEAST),
    HourColumn("memory clock", "memory_clock_mhz", BucketAggregation.LEAST),
    HourColumn("ECC corrected", "ecc_corrected", BucketAggregation.LAST),
    HourColumn("ECC uncorrected", "ecc_uncorrected", BucketAggregation.LAST),
    HourColumn("PCIe width", "pcie_width", BucketAggregation.LEAST),
    HourColumn("PCIe replays", "pcie_replays", BucketAggregation.LAST),
    HourColumn("NVLink CRC errors", "crc_errors", BucketAggregation.LAST),
    HourColumn("NVLink replays", "replay_errors", BucketAggregation.LAST),
    HourColumn("NVLink recoveries", "recovery_errors", BucketAggregation.LAST),
    HourColumn(THROTTLE, "throttle_mask", BucketAggregation.ANY_BIT),
)
_GPU_ROW = RowReader(GPU_COLUMNS, of_gpu=True)
PRESSURES = {"cpu": "CPU pressure", "io": "IO pressure", "memory": "memory pressure"}
HOST_COLUMNS = tuple(HourColumn(name, "some_percent", BucketAggregation.MOST) for name in PRESSURES.values())


class HourBuckets:
    """The buckets of one GPU or of the host in a fixed ring; the oldest is overwritten."""

    def __init__(self, columns: Sequence[HourColumn]) -> None:
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
                values[place] = (
                    _aggregate_value(self._columns[number].fold, values[place], value, seen) if seen else value
                )
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


class HourRing:
    """The hour of all GPUs and the host. Written by the main loop, read by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hours: dict[str, HourBuckets] = {}  # by PCI address: after a GPU is lost, indices move

    def take_sweep(self, sweep: Sweep, by_index: Mapping[int, Gpu], now: Moment) -> None:
        """Add the readings of one sweep. A lost GPU has none, so its curves end."""
        bucket = bucket_of(now.monotonic)
        with self._lock:
            for reading in sweep.readings:
                gpu = by_index.get(reading.index)
                if gpu is not None and gpu.pci and (row := _GPU_ROW(reading)) is not None:
                    self._hour(gpu.pci, GPU_COLUMNS).add(bucket, row)

    def take_source(self, reading: SourceReading, now: Moment) -> None:
        """Add a source's reading; only the host's pressure is kept."""
        if isinstance(reading.sample, PressureSample):
            known = {stall.resource: stall.some_percent for stall in reading.sample.stalls}
            row = [nan if (value := known.get(resource)) is None else value for resource in PRESSURES]
            with self._lock:
                self._hour(HOST, HOST_COLUMNS).add(bucket_of(now.monotonic), row)

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

    def _hour(self, name: str, columns: Sequence[HourColumn]) -> HourBuckets:
        hour = self._hours.get(name)
        if hour is None:
            if len(self._hours) >= BLOCKS_MAX:
                del self._hours[min(self._hours, key=lambda each: self._hours[each].newest)]
            hour = self._hours[name] = HourBuckets(columns)
        return hour


def _aggregate_value(fold: BucketAggregation, kept: float, value: float, seen: int) -> float:
    if fold is BucketAggregation.MOST:
        return max(kept, value)
    if fold is BucketAggregation.LEAST:
        return min(kept, value)
    if fold is BucketAggregation.MEAN:
        return kept + (value - kept) / (seen + 1)
    return float(int(kept) | int(value)) if fold is BucketAggregation.ANY_BIT else value

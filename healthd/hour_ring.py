"""The last hour of each GPU and of the host in buckets of half a minute, for whoever asks the centre to see it.

Fed from the samples that are taken anyway. Each bucket keeps the worst of what was read in it, so that a peak of one
second is seen an hour later. Twenty kilobytes a GPU; the evidence ring beside it keeps every second, of a shorter time.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import isnan, nan
from typing import NamedTuple

from healthd.facts import Moment
from healthd.samples.nvml import Sweep
from healthd.samples.pressure import PressureSample
from healthd.samples.source import SourceReading
from healthd.telemetry_ring import RowReader
from vocabulary.telemetry import (
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
from vocabulary.wire import Gpu, encode


class Fold(Enum):
    """What a bucket keeps of several readings."""

    MOST = "most"
    LEAST = "least"
    MEAN = "mean"
    LAST = "last"  # of a counter, also when it begins anew
    ANY_BIT = "any bit"


class Column(NamedTuple):
    """One series: its name in the vocabulary, the reading's field in units of `factor`, and how readings fold."""

    name: str
    field: str
    fold: Fold
    factor: float = 1.0


GPU_COLUMNS = (
    Column("temperature", "temperature_c", Fold.MOST),
    Column("memory temperature", "memory_temperature_c", Fold.MOST),
    Column("power", "power_mw", Fold.MOST, 1e-3),
    Column("power limit", "power_limit_mw", Fold.LEAST, 1e-3),
    Column("utilization", "gpu_percent", Fold.MEAN),
    Column("SM active", "sm_active_percent", Fold.MEAN),
    Column("tensor active", "tensor_active_percent", Fold.MEAN),
    Column("memory bandwidth active", "dram_active_percent", Fold.MEAN),
    Column("memory used", "memory_used_bytes", Fold.MOST, 1 / (1 << 20)),
    Column("SM clock", "sm_clock_mhz", Fold.LEAST),
    Column("memory clock", "memory_clock_mhz", Fold.LEAST),
    Column("ECC corrected", "ecc_corrected", Fold.LAST),
    Column("ECC uncorrected", "ecc_uncorrected", Fold.LAST),
    Column("PCIe width", "pcie_width", Fold.LEAST),
    Column("PCIe replays", "pcie_replays", Fold.LAST),
    Column("NVLink CRC errors", "crc_errors", Fold.LAST),
    Column("NVLink replays", "replay_errors", Fold.LAST),
    Column("NVLink recoveries", "recovery_errors", Fold.LAST),
    Column(THROTTLE, "throttle_mask", Fold.ANY_BIT),
)
_GPU_ROW = RowReader(GPU_COLUMNS, of_gpu=True)
PRESSURES = {"cpu": "CPU pressure", "io": "IO pressure", "memory": "memory pressure"}
HOST_COLUMNS = tuple(Column(name, "some_percent", Fold.MOST) for name in PRESSURES.values())


class Hour:
    """The buckets of one GPU, or of the host: a place for each, the oldest overwritten."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._numbers = array("q", [-1]) * BUCKETS
        self._values = [array("d", [nan]) * BUCKETS for _ in columns]
        self._seen = [0] * len(columns)  # readings in the open bucket, by column
        self.newest = -1

    def add(self, bucket: int, row: Iterable[float]) -> None:
        """One reading of each column, NaN where there is none. Buckets come in order."""
        place = bucket % BUCKETS
        if self._numbers[place] != bucket:
            self._numbers[place] = self.newest = bucket
            self._seen = [0] * len(self._columns)
            for values in self._values:
                values[place] = nan
        for number, value in enumerate(row):
            if value == value:  # noqa: PLR0124 - only NaN is unlike itself
                values, seen = self._values[number], self._seen[number]
                values[place] = _folded(self._columns[number].fold, values[place], value, seen) if seen else value
                self._seen[number] = seen + 1

    def block(self, name: str, first: int, last: int) -> TelemetryBlock | None:
        """Buckets `first` to `last`, columns without a value left out; None if there is no value at all."""
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
    """Fed by the main loop, asked by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hours: dict[str, Hour] = {}  # by the GPU's PCI address: an index is another GPU's once one is lost

    def take_sweep(self, sweep: Sweep, by_index: Mapping[int, Gpu], now: Moment) -> None:
        """The readings of one sweep. A lost GPU has none, and so its curves end."""
        bucket = bucket_of(now.monotonic)
        with self._lock:
            for reading in sweep.readings:
                gpu = by_index.get(reading.index)
                if gpu is not None and gpu.pci and (row := _GPU_ROW(reading)) is not None:
                    self._hour(gpu.pci, GPU_COLUMNS).add(bucket, row)

    def take_source(self, reading: SourceReading, now: Moment) -> None:
        """One look at a source; the host's pressure is kept."""
        if isinstance(reading.sample, PressureSample):
            known = {stall.resource: stall.some_percent for stall in reading.sample.stalls}
            row = [nan if (value := known.get(resource)) is None else value for resource in PRESSURES]
            with self._lock:
                self._hour(HOST, HOST_COLUMNS).add(bucket_of(now.monotonic), row)

    def part(self, now: float, back_s: float) -> TelemetryPart:
        """The buckets that were open in the last `back_s` before `now` (monotonic), as many of them as may be sent at once."""
        newest = bucket_of(now)
        count = min(BUCKETS, newest - bucket_of(now - min(max(back_s, 0.0), BUCKETS * BUCKET_S)) + 1)
        while True:
            with self._lock:
                blocks = [hour.block(name, newest - count + 1, newest) for name, hour in self._hours.items()]
            part = TelemetryPart(round(now, 3), tuple(block for block in blocks if block is not None))
            if count <= 1 or len(encode(part)) <= TELEMETRY_BYTES_MAX:
                return part
            count //= 2

    def _hour(self, name: str, columns: Sequence[Column]) -> Hour:
        hour = self._hours.get(name)
        if hour is None:
            if len(self._hours) >= BLOCKS_MAX:
                del self._hours[min(self._hours, key=lambda each: self._hours[each].newest)]
            hour = self._hours[name] = Hour(columns)
        return hour


def _folded(fold: Fold, kept: float, value: float, seen: int) -> float:
    if fold is Fold.MOST:
        return max(kept, value)
    if fold is Fold.LEAST:
        return min(kept, value)
    if fold is Fold.MEAN:
        return kept + (value - kept) / (seen + 1)
    return float(int(kept) | int(value)) if fold is Fold.ANY_BIT else value

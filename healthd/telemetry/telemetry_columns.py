"""What the telemetry history keeps of a sample, and for how long: one table of columns for both resolutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from math import nan
from operator import attrgetter
from typing import NamedTuple

from healthd.samples.nvml import Link
from vocabulary.messages.telemetry_messages import GPU_SERIES, HOST_SERIES, THROTTLE


class BucketAggregation(Enum):
    """How a bucket combines several readings."""

    MOST = "most"
    LEAST = "least"
    MEAN = "mean"
    LAST = "last"  # of a counter, also across a reset
    ANY_BIT = "any bit"


class Tier(NamedTuple):
    """Columns that are read at the same rate. Counters need type `d`: single precision ends at 16 million."""

    capacity: int
    typecode: str = "f"


class Column(NamedTuple):
    """One value of a sample: its name, its unit, and the sample's field that holds it, in units of `factor`.

    A field `links.x` is summed over a GPU's links. `fold` is for the buckets of an hour, `tier` for single rows; a column
    without one is not kept at that resolution.
    """

    name: str
    unit: str
    field: str
    fold: BucketAggregation | None = None
    tier: Tier | None = None
    factor: float = 1.0


EVERY_SWEEP, TEN_SECONDS, EVERY_MINUTE, FABRIC = Tier(1024), Tier(128), Tier(32, "d"), Tier(96, "d")
_MOST, _LEAST, _MEAN, _LAST, _ANY_BIT = BucketAggregation

GPU_COLUMNS = tuple(
    Column(name, GPU_SERIES[name].unit, field, fold, tier, factor)
    for name, field, fold, tier, factor in (
        ("temperature", "temperature_c", _MOST, EVERY_SWEEP, 1),
        ("memory temperature", "memory_temperature_c", _MOST, TEN_SECONDS, 1),
        ("power", "power_mw", _MOST, EVERY_SWEEP, 1e-3),
        ("power limit", "power_limit_mw", _LEAST, None, 1e-3),
        ("utilization", "gpu_percent", _MEAN, TEN_SECONDS, 1),
        ("SM active", "sm_active_percent", _MEAN, None, 1),
        ("tensor active", "tensor_active_percent", _MEAN, None, 1),
        ("memory bandwidth active", "dram_active_percent", _MEAN, None, 1),
        ("memory used", "memory_used_bytes", _MOST, None, 1 / (1 << 20)),
        ("SM clock", "sm_clock_mhz", _LEAST, EVERY_SWEEP, 1),
        ("memory clock", "memory_clock_mhz", _LEAST, TEN_SECONDS, 1),
        ("ECC corrected", "ecc_corrected", _LAST, None, 1),
        ("ECC uncorrected", "ecc_uncorrected", _LAST, None, 1),
        ("PCIe width", "pcie_width", _LEAST, None, 1),
        ("PCIe replays", "pcie_replays", _LAST, EVERY_MINUTE, 1),
        ("NVLink CRC errors", "links.crc_errors", _LAST, EVERY_MINUTE, 1),
        ("NVLink replays", "links.replay_errors", _LAST, EVERY_MINUTE, 1),
        ("NVLink recoveries", "links.recovery_errors", _LAST, EVERY_MINUTE, 1),
        (THROTTLE, "throttle_mask", _ANY_BIT, EVERY_SWEEP, 1),
    )
)
PRESSURES = {"cpu": "CPU pressure", "io": "IO pressure", "memory": "memory pressure"}
HOST_COLUMNS = tuple(Column(name, HOST_SERIES[name].unit, "some_percent", _MOST) for name in PRESSURES.values())


def _counters(*fields: str) -> tuple[Column, ...]:
    return tuple(Column(field.replace("_", " "), "counter", field, tier=FABRIC) for field in fields)


INFINIBAND = (
    Column("rate", "Gb/s", "rate_gbps", tier=FABRIC),
    *_counters("symbol_errors", "link_downed", "link_recoveries", "receive_errors", "transmit_discards"),
    *_counters("transmit_wait_ticks", "out_of_sequence", "retransmits", "congestion_sent", "congestion_handled"),
)
ETHERNET = (
    Column("carries traffic", "0 or 1", "up", tier=FABRIC),
    Column("speed", "Mb/s", "speed_mbps", tier=FABRIC),
    *_counters("carrier_changes", "receive_errors", "transmit_errors", "crc_errors", "receive_drops"),
)


class RowReader:
    """Reads several columns of a sample at once. Kept cheap, because all GPUs are read every second."""

    def __init__(self, columns: Sequence[Column]) -> None:
        fields = [column.field.partition(".") for column in columns]
        self._read = attrgetter(*(field for field, _, _ in fields))
        self._columns = tuple((column.factor, of_link) for column, (_, _, of_link) in zip(columns, fields, strict=True))
        self._nothing = (None,) * len(columns)

    def __call__(self, sample: object) -> list[float] | None:
        """Return one value per column, NaN if unknown; None if all are unknown."""
        values = self._read(sample)
        if values == self._nothing:
            return None
        return [
            nan if value is None else _sum_link_counters(value, of_link) if of_link else float(value) * factor
            for value, (factor, of_link) in zip(values, self._columns, strict=True)
        ]


def _sum_link_counters(links: Iterable[Link], field: str) -> float:
    counts = [count for link in links if (count := getattr(link, field)) is not None]
    return float(sum(counts)) if counts else nan

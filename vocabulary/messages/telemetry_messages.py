"""The last hour of a node as curves, for a person viewing it now. Sent only on request.

A point is one bucket of half a minute and holds its worst value (a peak, a lowest clock, every reason that was given),
so that nothing short is lost. Names, units and bounds are this closed list; anything else is rejected. Buckets are
numbered on the node's monotonic clock: a step of the wall clock tears no curve.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

BUCKET_S = 30.0
BUCKETS = 120  # an hour
TELEMETRY_BYTES_MAX = 256 << 10
BLOCKS_MAX = 33  # 32 GPUs and the host
HOST = ""  # in place of a GPU's PCI address
REQUEST_S_MAX = 300.0
MONOTONIC_S_MAX = 1e10
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)

COUNT_MAX = 2.0**63


class SeriesKind(NamedTuple):
    """A series' unit, and the least and greatest plausible value."""

    unit: str
    least: float
    most: float


_PERCENT, _COUNT = SeriesKind("%", 0.0, 100.0), SeriesKind("since the driver was loaded", 0.0, COUNT_MAX)
THROTTLE = "throttle reasons"

GPU_SERIES: Mapping[str, SeriesKind] = {
    "temperature": SeriesKind("°C", -50.0, 250.0),
    "memory temperature": SeriesKind("°C", -50.0, 250.0),
    "power": SeriesKind("W", 0.0, 10_000.0),
    "power limit": SeriesKind("W", 0.0, 10_000.0),
    "utilization": _PERCENT,
    "SM active": _PERCENT,
    "tensor active": _PERCENT,
    "memory bandwidth active": _PERCENT,
    "memory used": SeriesKind("MiB", 0.0, 1e8),
    "SM clock": SeriesKind("MHz", 0.0, 100_000.0),
    "memory clock": SeriesKind("MHz", 0.0, 100_000.0),
    "ECC corrected": _COUNT,
    "ECC uncorrected": _COUNT,
    "PCIe width": SeriesKind("lanes", 0.0, 64.0),
    "PCIe replays": _COUNT,
    "NVLink CRC errors": SeriesKind("all links", 0.0, COUNT_MAX),
    "NVLink replays": SeriesKind("all links", 0.0, COUNT_MAX),
    "NVLink recoveries": SeriesKind("all links", 0.0, COUNT_MAX),
    THROTTLE: SeriesKind("bit mask", 0.0, 2.0**32 - 1),
}
HOST_SERIES: Mapping[str, SeriesKind] = {
    "CPU pressure": _PERCENT,
    "IO pressure": _PERCENT,
    "memory pressure": _PERCENT,
}


class TelemetryRequest(msgspec.Struct, frozen=True):
    """A request: for `lasts_s` from now on send telemetry with every report, and report every few seconds.

    The next report should hold the buckets of the last `back_s`; the controller has the rest.
    """

    lasts_s: float
    back_s: float = BUCKETS * BUCKET_S


class TelemetryBlock(msgspec.Struct, frozen=True):
    """One GPU, by its PCI address, or the host. Columns begin with bucket number `first`; None: no reading."""

    gpu: str
    first: int
    columns: dict[str, tuple[float | None, ...]]


class TelemetryPart(msgspec.Struct, frozen=True):
    """A report's telemetry. `monotonic` is the node's clock when it was made; bucket n begins at n times `bucket_s`."""

    monotonic: float
    blocks: tuple[TelemetryBlock, ...]
    bucket_s: float = BUCKET_S


class TelemetryError(ValueError):
    """An invalid part. The text says what is wrong with it, and repeats nothing of the node's data."""


def read_part(data: bytes | memoryview) -> TelemetryPart:
    """Return the valid part of `data`: unknown series are dropped, and values out of bounds become None.

    Raises:
        TelemetryError: it is too long, cannot be read, or has impossible times.
    """
    if len(data) > TELEMETRY_BYTES_MAX:
        raise TelemetryError(f"longer than {TELEMETRY_BYTES_MAX} bytes")
    try:
        part = msgspec.json.decode(data, type=TelemetryPart)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TelemetryError("cannot be read") from None
    if part.bucket_s != BUCKET_S:
        raise TelemetryError("has buckets of another length")
    if not 0.0 <= part.monotonic <= MONOTONIC_S_MAX:
        raise TelemetryError("has an impossible clock")
    if len({block.gpu for block in part.blocks}) < len(part.blocks) or len(part.blocks) > BLOCKS_MAX:
        raise TelemetryError("has too many blocks")
    newest = bucket_of(part.monotonic)
    return msgspec.structs.replace(part, blocks=tuple(_read_block(block, newest) for block in part.blocks))


def bucket_of(monotonic: float) -> int:
    """Return the number of the bucket that is open at this time."""
    return math.floor(monotonic / BUCKET_S)


def _read_block(block: TelemetryBlock, newest: int) -> TelemetryBlock:
    if block.gpu != HOST and PCI.fullmatch(block.gpu) is None:
        raise TelemetryError("names a GPU by an invalid PCI address")
    known = HOST_SERIES if block.gpu == HOST else GPU_SERIES
    columns: dict[str, tuple[float | None, ...]] = {}
    for name, values in block.columns.items():
        kind = known.get(name)
        if kind is None:
            continue
        if not newest - BUCKETS < block.first <= newest + 1 - len(values):
            raise TelemetryError("has buckets outside the last hour")
        columns[name] = tuple(
            value if value is not None and kind.least <= value <= kind.most else None for value in values
        )
    return msgspec.structs.replace(block, columns=columns)

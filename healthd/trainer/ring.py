"""The ring of a beacon page: one entry for each finished step. Pure; `docs/beacon.md` is its prose.

A number that is not there is told by a flag, never by a value, so a loss of NaN is a loss that was reported as NaN.
"""

from __future__ import annotations

import enum
import struct
from math import isfinite
from statistics import median
from typing import NamedTuple
from zlib import crc32

NUMBER_MAX = 2.0**63  # any user can write a page: what no report could carry must not silence the node
ENTRIES, ENTRY_BYTES = 1024, 96
LATE_STEPS_MAX = 16  # an entry that has not got its late values by then never gets them

LOSS, GRAD_NORM, TOKENS = 1 << 8, 1 << 9, 1 << 10
ON_DEVICE, AWAITED = 1 << 16, 1 << 17

HEAD = struct.Struct("<QqddI")  # ordinal, step, started_at, seconds, flags
ENTRY = struct.Struct(
    "<QqddI7fddQI"
)  # the head; seconds by section; loss, gradient norm, tokens, zero; then its CRC-32
UNMEASURED = bytes(ENTRY.size - HEAD.size)
_CRC = struct.Struct("<I")
_SECONDS_MAX = 1e9


class Section(enum.IntEnum):
    """A part of a step. A loop's own names for its parts all count as `OTHER`."""

    NONE = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    COMMUNICATION = 4
    OPTIMIZER = 5
    CHECKPOINT = 6
    OTHER = 7


SECTION_NAMES = tuple(section.name.lower() for section in Section if section)


class StepRecord(NamedTuple):
    """One finished step: when it began (UTC seconds), how long it took, and what the loop told of it.

    `sections` are seconds by section, those that were timed: of the GPU where `on_device`, else of the host. Loss and
    gradient norm may be NaN or infinite; None is "not told". While `awaited`, some are still to come from the GPU.
    """

    step: int
    started_at: float
    seconds: float
    sections: dict[str, float] = {}  # noqa: RUF012 - nobody writes into it
    loss: float | None = None
    grad_norm: float | None = None
    tokens: int | None = None
    on_device: bool = False
    awaited: bool = False


class Measured(NamedTuple):
    """What an entry says beyond its time; `seconds` has one place for each section."""

    flags: int = 0
    seconds: tuple[float, ...] = (0.0,) * len(SECTION_NAMES)
    loss: float = 0.0
    grad_norm: float = 0.0
    tokens: int = 0


def pack_entry(ordinal: int, step: int, started_at: float, seconds: float, measured: Measured = Measured()) -> bytes:  # noqa: B008 - immutable
    """An entry of `ENTRY_BYTES` bytes.

    Raises:
        struct.error: a number does not fit its field.
    """
    flags, by_section, loss, grad_norm, tokens = measured
    body = ENTRY.pack(ordinal, step, started_at, seconds, flags, *by_section, loss, grad_norm, tokens, 0)
    return body + _CRC.pack(crc32(body))


def unpack(ring: bytes, completed: int, last: int) -> list[StepRecord]:
    """The newest `last` finished steps, oldest first. An entry that is torn, damaged or out of range is left out."""
    records = []
    for ordinal in range(max(0, completed - min(last, ENTRIES)), completed):
        at = ordinal % ENTRIES * ENTRY_BYTES
        body = ring[at : at + ENTRY.size]
        if len(body) != ENTRY.size or HEAD.unpack_from(body)[0] != ordinal:
            continue
        if ring[at + ENTRY.size : at + ENTRY_BYTES] != _CRC.pack(crc32(body)):
            continue
        record = _record(body)
        if record is not None:
            records.append(record)
    return records


def _record(body: bytes) -> StepRecord | None:
    _, step, started_at, seconds, flags, *by_section, loss, grad_norm, tokens, _ = ENTRY.unpack(body)
    if not (abs(started_at) < NUMBER_MAX and 0 <= seconds < NUMBER_MAX and tokens < NUMBER_MAX):
        return None  # NaN is in no range
    sections = {}
    if flags & 0x7F:
        sections = {name: value for i, (name, value) in enumerate(zip(SECTION_NAMES, by_section)) if flags >> i & 1}  # noqa: B905 - seven of each by the format; called for each step of each rank
        if not all(0 <= value < NUMBER_MAX for value in sections.values()):
            return None
    return StepRecord(
        step,
        started_at,
        seconds,
        sections,
        loss if flags & LOSS else None,
        grad_norm if flags & GRAD_NORM else None,
        tokens if flags & TOKENS else None,
        bool(flags & ON_DEVICE),
        bool(flags & AWAITED),
    )


def seconds_that_fit(seconds: float) -> float:
    """A duration as an entry can hold it: a clock that goes astray must not stop a training run."""
    return min(max(seconds, 0.0), _SECONDS_MAX) if isfinite(seconds) else 0.0


class Durations(NamedTuple):
    """How long steps took, and their sections: of the newest step that told, and the medians."""

    last: float = 0.0
    median: float = 0.0
    sections: dict[str, float] = {}  # noqa: RUF012 - nobody writes into it
    sections_median: dict[str, float] = {}  # noqa: RUF012 - nobody writes into it


def durations(steps: list[StepRecord]) -> Durations:
    """Summarise steps, oldest first; a section's median is over the steps that have it. Seconds, to the microsecond."""
    if not steps:
        return Durations()
    by_name: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.sections.items():
            by_name.setdefault(name, []).append(value)
    newest = next((step.sections for step in reversed(steps) if step.sections), {})
    return Durations(
        steps[-1].seconds,
        round(median(step.seconds for step in steps), 6),
        {name: round(value, 6) for name, value in newest.items()},
        {name: round(median(values), 6) for name, values in by_name.items()},
    )

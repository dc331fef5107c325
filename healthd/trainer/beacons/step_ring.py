"""The ring of a beacon page: one entry per finished step. Pure; `docs/reference/beacon.md` describes it.

A flag marks an absent number, never a value, so a loss of NaN was reported as NaN.
"""

from __future__ import annotations

import enum
import functools
import struct
from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple
from zlib import crc32

NUMBER_MAX = 2.0**63  # any user can write a page: values that no report can carry must not silence the node
ENTRIES, ENTRY_BYTES = 1024, 96
LATE_STEPS_MAX = 16  # an entry still incomplete by then stays incomplete

LOSS, GRAD_NORM, TOKENS = 1 << 8, 1 << 9, 1 << 10
ON_DEVICE, AWAITED = 1 << 16, 1 << 17

HEAD = struct.Struct("<QqddI")  # ordinal, step, started_at, seconds, flags
BODY = struct.Struct("<QqddI7fddQI")  # the head; seconds by section; loss, gradient norm, tokens, zero
ENTRY = struct.Struct("<QqddI7fddQII")  # the body, its CRC-32
_CRC = struct.Struct("<I")
_SECONDS_MAX = 1e9


class StepSection(enum.IntEnum):
    """A part of a step. A loop's own section names all count as `OTHER`."""

    NONE = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    COMMUNICATION = 4
    OPTIMIZER = 5
    CHECKPOINT = 6
    OTHER = 7


SECTION_NAMES = tuple(section.name.lower() for section in StepSection if section)


class StepRecord(NamedTuple):
    """One finished step: start (UTC seconds), duration, and reported values.

    `sections` are seconds by timed section: of the GPU if `on_device`, else of the host. Loss and gradient norm may be
    NaN or infinite; None means not reported. While `awaited`, some values are still to come from the GPU.
    """

    step: int
    started_at: float
    seconds: float
    sections: dict[str, float] = {}  # noqa: RUF012 - never written to
    loss: float | None = None
    grad_norm: float | None = None
    tokens: int | None = None
    on_device: bool = False
    awaited: bool = False


EndedStep = tuple[int, int, float, float]  # ordinal, step, start (UTC seconds), duration (seconds)


class EntryMeasurements(NamedTuple):
    """An entry's values besides its time; `seconds` has one place per `StepSection`, the first for none of them."""

    flags: int = 0
    seconds: Sequence[float] = (0.0,) * len(StepSection)
    loss: float = 0.0
    grad_norm: float = 0.0
    tokens: int = 0


def pack_entry(ordinal: int, step: int, started_at: float, seconds: float, measured: EntryMeasurements) -> bytes:
    """Return an entry of `ENTRY_BYTES` bytes.

    Raises:
        struct.error, OverflowError: a number does not fit its field.
    """
    flags, (_, data, forward, backward, communication, optimizer, checkpoint, other), loss, grad_norm, tokens = measured
    body = BODY.pack(
        *(ordinal, step, started_at, seconds, flags, data, forward, backward, communication, optimizer, checkpoint),
        *(other, loss, grad_norm, tokens, 0),
    )
    return body + _CRC.pack(crc32(body))


def unpack_entries(ring: bytes, completed: int, last: int) -> list[StepRecord]:
    """Return the newest `last` finished steps, oldest first, without torn, damaged or out-of-range entries."""
    records = []
    for ordinal in range(max(0, completed - min(last, ENTRIES)), completed):
        at = ordinal % ENTRIES * ENTRY_BYTES
        entry = ring[at : at + ENTRY_BYTES]
        if len(entry) == ENTRY_BYTES:
            record = _unpack_record(ordinal, entry)
            if record is not None:
                records.append(record)
    return records


def _unpack_record(expected: int, entry: bytes) -> StepRecord | None:
    fields = ENTRY.unpack(entry)
    ordinal, step, started_at, seconds, flags, *by_section, loss, grad_norm, tokens, _, checksum = fields
    if ordinal != expected or checksum != crc32(entry[: BODY.size]):
        return None
    if not (-NUMBER_MAX < started_at < NUMBER_MAX and 0 <= seconds < NUMBER_MAX and tokens < NUMBER_MAX):
        return None  # NaN is in no range
    sections = {name: by_section[at] for at, name in _list_timed_sections(flags & 0x7F)}
    if sections and not 0 <= sum(map(abs, sections.values())) < NUMBER_MAX:
        return None
    return StepRecord(
        step,
        started_at,
        seconds,
        sections,
        loss if flags & LOSS else None,
        grad_norm if flags & GRAD_NORM else None,
        tokens if flags & TOKENS else None,
        flags & ON_DEVICE != 0,
        flags & AWAITED != 0,
    )


@functools.cache
def _list_timed_sections(flags: int) -> tuple[tuple[int, str], ...]:
    return tuple((at, name) for at, name in enumerate(SECTION_NAMES) if flags >> at & 1)


def seconds_that_fit(seconds: float) -> float:
    """Limit a duration to what an entry can hold: a clock error must not stop a training run."""
    return min(max(seconds, 0.0), _SECONDS_MAX) if isfinite(seconds) else 0.0


class StepDurations(NamedTuple):
    """Durations of steps and their sections: of the newest step that reported, and the medians."""

    median: float = 0.0
    sections: dict[str, float] = {}  # noqa: RUF012 - never written to
    sections_median: dict[str, float] = {}  # noqa: RUF012 - never written to


def summarize_durations(steps: list[StepRecord]) -> StepDurations:
    """Summarise steps, oldest first; a section's median is over the steps that have it. Seconds, rounded to 1 µs."""
    if not steps:
        return StepDurations()
    by_name: dict[str, list[float]] = {}
    for step in steps:
        for name, value in step.sections.items():
            by_name.setdefault(name, []).append(value)
    newest = next((step.sections for step in reversed(steps) if step.sections), {})
    return StepDurations(
        round(_compute_median([step.seconds for step in steps]), 6),
        {name: round(value, 6) for name, value in newest.items()},
        {name: round(_compute_median(values), 6) for name, values in by_name.items()},
    )


def _compute_median(values: list[float]) -> float:
    """Return the median; importing `statistics` would cost every rank ten milliseconds."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2

"""NVLink details: the sub-codes of Xids 144 to 150, and the register bits of Xid 74. Pure.

The tables are data (``nvlink.yaml``); this finds the entries that match one line. No match never means "nothing to do":
then the driver's own severity decides, and the reading says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from vocabulary.driver_log.xid_detail import decode_xid_detail
from vocabulary.driver_log.xid_line import KernelEvent
from vocabulary.fault_catalogue.catalogue_entry import Advice
from vocabulary.fault_catalogue.line_reading import Basis, Reading
from vocabulary.finding import Severity

REGISTERS = 7  # printed by a line of Xid 74
REGISTER_BITS = 32
WORD_DIGITS = len("0x") + 8  # of an untruncated register value
_FATAL, _NONFATAL = "fatal", "nonfatal"


class Bucket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of one of the vendor's action names."""

    severity: Severity
    action: Advice
    says: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The action for some values of the second register value. No `status`: for any value."""

    immediate: str
    later: str
    printed: str
    side: str
    status: tuple[int, ...] = ()
    word_decides: bool = False


class Unit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One unit of NVLink 5. `v1` and `v2` are (mask, value) of the first register value in either layout."""

    unit: str
    v1: tuple[int, int]
    v2: tuple[int, int]
    rows: tuple[Row, ...]
    unit_v2: str = ""
    reason: int | None = None
    about: str = ""


class RegisterBits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of some bits of one register of Xid 74."""

    register: int
    bits: tuple[int, ...]
    severity: Severity
    action: Advice
    says: str


class OtherBits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a bit without a row, in the registers that carry meaning."""

    registers: tuple[int, ...]
    severity: Severity
    action: Advice
    says: str


class NvlinkTables(msgspec.Struct, frozen=True, kw_only=True):
    """``nvlink.yaml``, validated: every bucket that a row names is described."""

    units: Mapping[int, tuple[Unit, ...]]
    buckets: Mapping[str, Bucket]
    printed: Mapping[str, Bucket]
    bits: tuple[RegisterBits, ...]
    other_bits: OtherBits


class _Fit(msgspec.Struct, frozen=True):
    unit: Unit
    layout: str
    name: str


def read_nvlink_event(event: KernelEvent, tables: NvlinkTables) -> Reading | None:
    """Return the action for a line of Xid 74 or 144 to 150; None if it has no register values, or is another Xid."""
    if event.code == 74:
        return _read_xid74_registers(event, tables)
    return _read_nvlink5_event(event, tables) if event.code in tables.units else None


def _read_nvlink5_event(event: KernelEvent, tables: NvlinkTables) -> Reading | None:
    found = decode_xid_detail(event)
    if "word" not in found:
        return None
    printed, word = str(found["unit"]), str(found["word"])
    fits = list(_match_units(event.code or 0, found, tables))
    rows = [(fit, row) for fit in fits for row in fit.unit.rows if _matches_status(row, found, event.detail)]
    named = [(fit, row) for fit, row in rows if printed in (fit.unit.unit, fit.unit.unit_v2)]
    readings = [_reading_from_row(fit, row, word, tables) for fit, row in named or rows]
    if not readings:
        return _reading_from_printed_severity(found, word, fits, tables)
    worst = max(readings, key=lambda reading: reading.weight)
    layout = _format_layouts(fit for fit, _ in named or rows)
    return msgspec.structs.replace(worst, layout=layout, says=(*worst.says, *_injection_notes(found)))


def _match_units(code: int, found: Mapping[str, str | int], tables: NvlinkTables) -> Iterator[_Fit]:
    """Return the units whose mask and value match the first register value. Without a second, it may be truncated."""
    if "status" not in found:
        return
    first = int(str(found["interrupt"]), 16)
    for unit in tables.units[code]:
        if first & unit.v1[0] == unit.v1[1]:
            yield _Fit(unit, "v1", unit.unit)
        if first & unit.v2[0] == unit.v2[1]:
            yield _Fit(unit, "v2", unit.unit_v2 or unit.unit)


def _matches_status(row: Row, found: Mapping[str, str | int], text: str) -> bool:
    if not row.status:
        return True
    status = str(found["status"])
    whole = "debug" in found or len(status) >= WORD_DIGITS or f"{status})" in text
    return whole and int(status, 16) in row.status


def _reading_from_row(fit: _Fit, row: Row, word: str, tables: NvlinkTables) -> Reading:
    now, later = tables.buckets[row.immediate], tables.buckets[row.later]
    worse = max(now, later, key=lambda bucket: (bucket.severity.rank, bucket.action.rank))
    says = [f"Unit {fit.name}: now {now.says}; for a person: {later.says}."]
    if fit.unit.about:
        says.append(fit.unit.about)
    expected = _normalize_fatality(row.printed)
    if _normalize_fatality(word) != expected and (_normalize_fatality(word) == _FATAL or row.word_decides):
        worse = tables.printed[_normalize_fatality(word)]
        says.append(
            f"The table expects {row.printed} here; the line says {_normalize_fatality(word)}, and that counts."
        )
    return Reading(
        severity=worse.severity,
        action=worse.action,
        basis=Basis.TABLE,
        says=tuple(says),
        unit=fit.name,
        layout=fit.layout,
        immediate=row.immediate,
        later=row.later,
    )


def _reading_from_printed_severity(
    found: Mapping[str, str | int], word: str, fits: list[_Fit], tables: NvlinkTables
) -> Reading:
    unit, bucket = fits[0].name if fits else str(found["unit"]), tables.printed[_normalize_fatality(word)]
    if fits:
        why = f"Unit {unit} is known, but not with this status"
    else:
        why = (
            f"No row matches the values of unit {unit}"
            if "status" in found
            else f"The values of unit {unit} are missing"
        )
    return Reading(
        severity=bucket.severity,
        action=bucket.action,
        basis=Basis.LINE,
        says=(f"{why}: the severity in the line decides, {_normalize_fatality(word)}.",),
        unit=unit,
        layout=_format_layouts(fits),
    )


def _format_layouts(fits: Iterable[_Fit]) -> str:
    return " or ".join(sorted({fit.layout for fit in fits}))


def _normalize_fatality(word: str) -> str:
    """Return ``fatal`` or ``nonfatal`` for a printed text such as "Link Fatal" or "Non-fatal"."""
    return _FATAL if word.rsplit(maxsplit=1)[-1].lower() == _FATAL else _NONFATAL


def _injection_notes(found: Mapping[str, str | int]) -> Iterator[str]:
    if found.get("driver_injected"):
        yield "The driver marks it as injected."


def _read_xid74_registers(event: KernelEvent, tables: NvlinkTables) -> Reading | None:
    words = str(decode_xid_detail(event).get("registers", "")).split(", ")
    cut = f"{words[-1]})" not in event.detail
    if cut and len(words[-1]) < WORD_DIGITS:
        words.pop()  # it may have lost digits
    read = [
        _read_register_bit(register, bit, tables)
        for register, word in enumerate(words[:REGISTERS], 1)
        if register in tables.other_bits.registers and word
        for bit in range(REGISTER_BITS)
        if int(word, 16) >> bit & 1
    ]
    if not read:
        return None
    worst = max(read, key=lambda reading: reading.weight)
    if cut and worst.severity.rank < Severity.ERROR.rank:
        return None  # harmless so far, but the rest is unknown
    return msgspec.structs.replace(worst, says=tuple(line for reading in read for line in reading.says))


def _read_register_bit(register: int, bit: int, tables: NvlinkTables) -> Reading:
    row: RegisterBits | OtherBits = next(
        (row for row in tables.bits if row.register == register and bit in row.bits), tables.other_bits
    )
    return Reading(
        severity=row.severity,
        action=row.action,
        basis=Basis.TABLE,
        says=(f"Register {register}, bit {bit}: {row.says}.",),
    )

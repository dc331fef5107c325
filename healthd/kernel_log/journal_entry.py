"""The grammar of one entry of `journalctl -o json` (systemd's "Journal JSON Format"). Pure.

A message is a string, an array of byte values if it is not text, or null if it is too long. What a process writes to
/dev/kmsg also has the kernel's transport, so the facility counts, as in /dev/kmsg itself.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_SEQNUM = re.compile(r"s=(?P<source>[0-9a-f]{1,64});i=(?P<position>[0-9a-f]{1,16});")
USER_FACILITY = 1
FACILITY_DIGITS_MAX = 9  # any process may write any value


class JournalError(ValueError):
    """A line that is no journal entry."""


class JournalEntry(msgspec.Struct, frozen=True):
    """One entry. `source` and `position` identify it within this machine's journal; `at` is UTC seconds."""

    source: str
    position: int
    at: float
    facility: int
    text: str


class _Fields(msgspec.Struct):
    cursor: str = msgspec.field(name="__CURSOR")
    realtime: str = msgspec.field(name="__REALTIME_TIMESTAMP", default="0")
    transport: Any = msgspec.field(name="_TRANSPORT", default="")
    facility: Any = msgspec.field(name="SYSLOG_FACILITY", default="0")
    identifier: Any = msgspec.field(name="SYSLOG_IDENTIFIER", default="kernel")
    message: Any = msgspec.field(name="MESSAGE", default=None)


_decoder = msgspec.json.Decoder(_Fields)


def parse_entry(line: bytes) -> JournalEntry:
    """Parse one line.

    Raises:
        JournalError: it is no entry, or has no cursor.
    """
    try:
        fields = _decoder.decode(line)
        at = int(fields.realtime) / 1e6
    except (msgspec.DecodeError, ValueError) as error:
        raise JournalError(f"not a journal entry: {error}: {line[:80]!r}") from error
    cursor = _SEQNUM.match(fields.cursor)
    if cursor is None:
        raise JournalError(f"a journal entry without a cursor: {fields.cursor[:80]!r}")
    return JournalEntry(
        f"journal-{cursor['source']}", int(cursor["position"], 16), at, _parse_facility(fields), _parse_message(fields)
    )


def _parse_facility(fields: _Fields) -> int:
    told = fields.facility
    number = told if isinstance(told, str) and told.isdecimal() and len(told) <= FACILITY_DIGITS_MAX else ""
    if fields.transport != "kernel" or fields.identifier not in ("kernel", "", None):
        return int(number or USER_FACILITY) or USER_FACILITY
    return int(number or 0)


def _parse_message(fields: _Fields) -> str:
    message = fields.message
    if isinstance(message, str):
        return message
    if isinstance(message, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in message):
        return bytes(message).decode(errors="replace")
    return ""

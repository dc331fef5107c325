"""Follows the kernel's messages in systemd's journal, where /dev/kmsg cannot be opened. Costs a child and 5 MiB.

The cursor is (the journal's sequence, number within it). A restart reads this boot's messages again and skips what the
cursor has passed, as with /dev/kmsg.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
from typing import IO, Any

import msgspec

from healthd.host import start_program
from healthd.samples.kernel_record import Cursor, KernelBatch, KernelRecord
from vocabulary.driver_log.spoofable_records import SpoofableRecordDetector

COMMAND = (
    "journalctl",
    "--dmesg",
    "--boot",
    "--follow",
    "--lines=all",
    "--output=json",
    "--all",
    "--no-pager",
    "--quiet",
)
LINE_BYTES_MAX = 1 << 16  # as JSON, an array of bytes takes five characters a byte
_READ_BYTES = 1 << 18
_SEQNUM = re.compile(r"s=(?P<source>[0-9a-f]{1,64});i=(?P<position>[0-9a-f]{1,16});")
USER_FACILITY = 1
FACILITY_DIGITS_MAX = 9  # any process may write any value


class SystemdJournal:
    """The child `journalctl`, read without blocking.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(self, cursor: Cursor | None) -> None:
        self._child = start_program(COMMAND, errors="drop")
        os.set_blocking(self.fileno(), False)
        self._cursor = cursor
        self._doubtful = SpoofableRecordDetector()
        self._data = b""
        self._skipping = False  # the rest of a line that was too long

    def fileno(self) -> int:
        """Return the descriptor for a selector: readable when there is something new, or the child has ended."""
        return self._output.fileno()

    def read(self, limit: int) -> KernelBatch:
        """Return up to `limit` records.

        Raises:
            OSError: the child has ended.
        """
        batch = KernelBatch(self._cursor)
        data = self._more() if self._data.count(b"\n") < limit else b""
        lines = (self._data + data).split(b"\n", limit)
        self._data = lines.pop()
        for line in lines:
            if self._skipping:
                self._skipping = False
            else:
                self._take(line, batch)
        if b"\n" not in self._data and len(self._data) > LINE_BYTES_MAX:
            batch.garbage.append(f"a journal entry of more than {LINE_BYTES_MAX} bytes was skipped")
            self._data, self._skipping = b"", True
        batch.cursor = self._cursor
        batch.more = b"\n" in self._data or len(data) == _READ_BYTES
        return batch

    def close(self, within_s: float) -> None:
        """End the child; wait at most `within_s` for it. While it reads a dead disk, SIGKILL does not reach it."""
        self._child.kill()
        self._output.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(within_s)

    @property
    def _output(self) -> IO[bytes]:
        if self._child.stdout is None:
            raise ValueError("the child must have been started with a pipe")
        return self._child.stdout

    def _more(self) -> bytes:
        try:
            data = os.read(self.fileno(), _READ_BYTES)
        except BlockingIOError:
            return b""
        if not data:
            raise OSError(errno.EPIPE, f"journalctl has ended ({self._child.poll()})")
        return data

    def _take(self, line: bytes, batch: KernelBatch) -> None:
        try:
            entry = parse_entry(line)
        except JournalError as error:
            batch.garbage.append(str(error))
            return
        if self._cursor is not None and entry.source == self._cursor.source and entry.position <= self._cursor.position:
            return
        self._cursor = Cursor(entry.source, entry.position)
        # The journal drops the continuation flag, so every record may be a continuation.
        attested = not self._doubtful.may_begin_with_a_name(entry.text, entry.facility, entry.at, continuation=True)
        batch.records.append(
            KernelRecord(entry.source, entry.position, entry.at, entry.facility, entry.text, attested=attested)
        )


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
    """Parse one entry of `journalctl -o json` (systemd's "Journal JSON Format"). Pure.

    A message is a string, an array of byte values if it is not text, or null if it is too long. What a process writes
    to /dev/kmsg also has the kernel's transport, so the facility counts, as in /dev/kmsg itself.

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

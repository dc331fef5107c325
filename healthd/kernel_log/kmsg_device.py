"""Reads the kernel's own log device, /dev/kmsg: one record per read, every record since boot that the ring still holds.

The cursor is (boot id, sequence number). A restart opens the device at its oldest record and skips what the cursor
has passed: seeking to a sequence number is not possible, and reading a thousand old records takes a millisecond.
"""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import msgspec

from healthd.kernel_log.record_batch import KernelBatch, SpoofableRecordDetector
from healthd.samples.kernel_record import Cursor, KernelGap, KernelRecord
from vocabulary.clock import Clock

RECORD_BYTES_MAX = 8192  # the kernel's own limit for one record
_HEADER = re.compile(rb"(?P<prio>\d{1,10}),(?P<seq>\d{1,20}),(?P<usec>\d{1,20}),(?P<flags>[^,;]{0,16})(?:,[^;]*)?;")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")


class KmsgDevice:
    """The device, opened non-blocking.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, boot_id: str, cursor: Cursor | None, clock: Clock) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._boot_id = boot_id
        self._clock = clock
        resumes = cursor is not None and cursor.source == boot_id
        self._cursor = cursor if resumes else None
        self._resuming = resumes
        self._overrun = False
        self._doubtful = SpoofableRecordDetector()

    def fileno(self) -> int:
        """Return the descriptor for a selector: readable when there is a record."""
        return self._descriptor

    def read(self, limit: int) -> KernelBatch:
        """Return up to `limit` records; never blocks.

        Raises:
            OSError: the device fails in a way the kernel does not document.
        """
        batch = KernelBatch(self._cursor)
        for _ in range(limit):
            try:
                data = os.read(self._descriptor, RECORD_BYTES_MAX)
            except BlockingIOError:
                return batch
            except OSError as error:
                if error.errno == errno.EPIPE:  # the ring overwrote unread records
                    self._overrun = True
                    continue
                if error.errno == errno.EINVAL:  # longer than any record may be: the kernel skipped it
                    batch.garbage.append("a kernel record did not fit its buffer and was skipped by the kernel")
                    continue
                raise
            try:
                self._take(parse_record(data), batch)
            except KmsgError as error:
                batch.garbage.append(str(error))
        batch.more = True
        return batch

    def close(self) -> None:
        """Close the device."""
        os.close(self._descriptor)

    def _take(self, record: KmsgRecord, batch: KernelBatch) -> None:
        last = self._cursor.position if self._cursor else None
        if last is not None and record.seq <= last:
            return
        at = self._written_at(record)
        if last is not None and (self._overrun or self._resuming) and record.seq > last + 1:
            batch.gaps.append(KernelGap(self._boot_id, record.seq, at, record.seq - last - 1))
        self._overrun = self._resuming = False
        self._cursor = batch.cursor = Cursor(self._boot_id, record.seq)
        doubtful = self._doubtful.may_begin_with_a_name(
            record.text, record.facility, record.usec / 1e6, continuation=record.flags != "-"
        )
        # A "+" record, of kernels before 4.9, is the rest of a line: it may begin with anything.
        attested = record.flags in ("-", "c") and not doubtful
        batch.records.append(
            KernelRecord(self._boot_id, record.seq, at, record.facility, record.text, attested=attested)
        )

    def _written_at(self, record: KmsgRecord) -> float:
        """Return a record's wall time: the kernel's stamps count from boot, close to monotonic time."""
        age = max(0.0, self._clock.monotonic() - record.usec / 1e6)
        return self._clock.wall() - age


class KmsgRecord(msgspec.Struct, frozen=True):
    """One record. `usec` counts from boot; `fields` are the KEY=value lines behind the text."""

    facility: int
    level: int
    seq: int
    usec: int
    flags: str
    text: str
    fields: dict[str, str] = {}


class KmsgError(ValueError):
    """Bytes that are no kmsg record."""


def parse_record(data: bytes) -> KmsgRecord:
    r"""Parse one record. Pure.

        prio,seq,usec,flags[,key=value…];text
         KEY=value

    `prio` holds facility (upper bits) and level (lower three); flags are ``-`` (whole), ``c`` (written with KERN_CONT:
    the NVIDIA driver's records carry it, and are whole all the same) or ``+`` (rest of a line, old kernels). Bytes the
    kernel dislikes come as ``\xNN``.

    Raises:
        KmsgError: it does not begin like a record.
    """
    header = _HEADER.match(data)
    if header is None:
        raise KmsgError(f"not a kernel record (expected 'prio,seq,usec,flags;text'): {data[:80]!r}")
    text, *rest = data[header.end() :].split(b"\n")
    fields = {}
    for line in rest:
        key, equals, value = line[1:].partition(b"=")
        if line.startswith(b" ") and equals:
            fields[_decode_text(key)] = _decode_text(value)
    prio = int(header["prio"])
    return KmsgRecord(
        facility=prio >> 3,
        level=prio & 7,
        seq=int(header["seq"]),
        usec=int(header["usec"]),
        flags=header["flags"].decode("ascii", "replace"),
        text=_decode_text(text),
        fields=fields,
    )


def _decode_text(data: bytes) -> str:
    if b"\\" in data:
        data = _ESCAPE.sub(lambda match: bytes((int(match[1], 16),)), data)
    return data.decode(errors="replace")

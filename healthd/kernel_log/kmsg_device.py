"""Reads the kernel's own log device, /dev/kmsg: one record per read, every record since boot that the ring still holds.

The cursor is (boot id, sequence number). A restart opens the device at its oldest record and skips what the cursor
has passed: seeking to a sequence number is not possible, and reading a thousand old records takes a millisecond.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from healthd.samples.kernel_record import Cursor, KernelBatch, KernelGap, KernelRecord
from vocabulary.clock import Clock
from vocabulary.driver_log.kmsg_record import RECORD_BYTES_MAX, KmsgError, KmsgRecord, parse_record
from vocabulary.driver_log.spoofable_records import SpoofableRecordDetector


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

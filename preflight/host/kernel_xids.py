"""Reads the GPU driver's lines (Xid, SXid, fallen off the bus) from the kernel log. Never blocks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from preflight.host.counter_records import KernelLogReading
from vocabulary.driver_log.kmsg_record import RECORD_BYTES_MAX, KmsgError, KmsgRecord, parse_record
from vocabulary.driver_log.spoofable_records import SpoofableRecordDetector
from vocabulary.driver_log.xid_line import parse_live_record

KERNEL_LOG = Path("/dev/kmsg")
RECORDS_MAX = 200_000  # of one reading: a log that is written faster than it is read must not hold the reader
LINES_MAX = 100  # of one reading: a broken GPU may write thousands of equal lines


class KernelXidReader:
    """The kernel log, opened once. Records before the first reading are skipped."""

    def __init__(self, path: Path | None = None) -> None:
        """Open it; an unreadable log is reported by `read`."""
        self._descriptor, self._unreadable = -1, ""
        self._spoofable = SpoofableRecordDetector()
        try:
            self._descriptor = os.open(path or KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self._unreadable = f"{path or KERNEL_LOG}: {error.strerror}"

    def read(self, since: int | None) -> KernelLogReading:
        """The driver's lines after record number `since`; None only finds the current position."""
        if self._unreadable:
            return KernelLogReading(position=since, unreadable=self._unreadable)
        lines: list[str] = []
        position = since
        for record in self._records():
            spoofable = self._spoofable.may_begin_with_a_name(
                record.text, record.facility, record.usec / 1e6, continuation=record.flags != "-"
            )
            new = since is not None and record.seq > since and not spoofable
            if new and len(lines) < LINES_MAX and is_driver_record(record):
                lines.append(record.text)
            position = record.seq if position is None else max(position, record.seq)
        # An empty log has no number: every later record counts.
        return KernelLogReading(lines=tuple(lines), position=-1 if position is None else position)

    def _records(self) -> Iterator[KmsgRecord]:
        for _ in range(RECORDS_MAX):
            try:
                data = os.read(self._descriptor, RECORD_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):  # the ring overwrote records; a record was too long
                    continue
                self._unreadable = f"the kernel log: {error.strerror}"
                return
            if not data:
                return
            for line in data.split(b"\n"):  # one record a read, its fields on indented lines
                with suppress(KmsgError):
                    yield parse_record(line)

    def close(self) -> None:
        """Close the log."""
        if self._descriptor >= 0:
            os.close(self._descriptor)


def is_driver_record(record: KmsgRecord) -> bool:
    """Whether the kernel itself wrote this record, and it is a line of the GPU driver. Programs write other facilities."""
    return record.facility == 0 and record.flags in ("-", "c") and parse_live_record(record.text) is not None

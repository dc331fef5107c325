"""Parses a line of a plain file that carries the kernel log, and follows that file through rotation and truncation.

The cursor is (device and inode, offset behind the last whole line). After a rotation the old file is read to its end
before the new one, even if the rotation happened while healthd was down (the file is then ``NAME.1``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from healthd.samples.kernel_record import Cursor, KernelBatch, KernelRecord
from vocabulary.clock import Clock

POLL_S = 0.05
LINE_BYTES_MAX = 8192
_READ_BYTES = 1 << 18
USER_FACILITY = 1

_PRIORITY = re.compile(r"<(?P<prio>\d{1,5})>")
_STAMP = re.compile(r"\[\s{0,12}\d{1,12}\.\d{1,9}\](?:\[\s{0,8}[TC]\d{1,10}\])? ")
_DATED = re.compile(
    r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)"
    r" (?P<host>[^\s:\[\]]{1,255}) (?P<tag>[^\s:\[]{1,64}(?:\[\d{1,10}\])?):? ?"
)


class LogFile:
    """A followed file. It need not exist yet. It cannot be polled by a selector: read every `POLL_S`.

    Lines that name a host count only if it is one of `hosts` (empty: all count), since syslog may gather several.
    Records are attested only if the file is `trusted`: any client of the syslog daemon may get a line into it, and a
    daemon that reads /proc/kmsg starts a new line where a file name printed by the kernel holds a line break.
    """

    def __init__(
        self, path: Path, cursor: Cursor | None, clock: Clock, hosts: Iterable[str] = (), *, trusted: bool = False
    ) -> None:
        self._path = path
        self._clock = clock
        self._trusted = trusted
        self._hosts = frozenset(_shorten_host(host) for host in hosts)
        self._descriptor = -1
        self._cursor = cursor
        if cursor is not None:
            for candidate in (str(path), f"{path}.1"):
                if self._open(candidate) == cursor.source:
                    return
        self._begin_anew()

    def read(self, limit: int) -> KernelBatch:
        """Return up to `limit` whole lines.

        Raises:
            OSError: the file cannot be read.
        """
        if self._descriptor < 0:
            self._begin_anew()
        cursor = self._cursor
        if cursor is None:
            return KernelBatch(None)
        if os.fstat(self._descriptor).st_size < cursor.position:  # truncated in place
            cursor = Cursor(cursor.source, 0)
        batch = self._take(os.pread(self._descriptor, _READ_BYTES, cursor.position), cursor, limit)
        self._cursor = batch.cursor
        if not batch.more and self._is_rotated(cursor.source):
            self._begin_anew()
            batch.more = True
        return batch

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take(self, data: bytes, cursor: Cursor, limit: int) -> KernelBatch:
        batch = KernelBatch(cursor)
        used = 0
        while len(batch.records) < limit and (end := data.find(b"\n", used)) >= 0:
            text = data[used:end][:LINE_BYTES_MAX].decode(errors="replace")
            if record := self._record(text, Cursor(cursor.source, cursor.position + used)):
                batch.records.append(record)
            used = end + 1
        if not used and len(data) == _READ_BYTES:
            batch.garbage.append(f"{self._path}: no line end within {len(data)} bytes; skipped")
            used = len(data)
        batch.cursor = Cursor(cursor.source, cursor.position + used)
        batch.more = len(batch.records) >= limit or len(data) == _READ_BYTES
        return batch

    def _record(self, text: str, at: Cursor) -> KernelRecord | None:
        """Return one line as a record; None if it is another host's."""
        line = parse_log_line(text)
        if line.host and self._hosts and _shorten_host(line.host) not in self._hosts:
            return None
        return KernelRecord(
            at.source, at.position, self._clock.wall(), line.facility, line.text, attested=self._trusted
        )

    def _is_rotated(self, source: str) -> bool:
        """Return whether the path names another file by now; the open one is read to its end."""
        try:
            return _name_file_source(self._path.stat()) != source
        except FileNotFoundError:
            return False

    def _begin_anew(self) -> None:
        source = self._open(str(self._path))
        self._cursor = Cursor(source, 0) if source else None

    def _open(self, path: str) -> str:
        """Open `path` in place of the open file; return its name, empty if there is no such file."""
        self.close()
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return ""
        return _name_file_source(os.fstat(self._descriptor))


def _shorten_host(host: str) -> str:
    return host.partition(".")[0].casefold()


def _name_file_source(status: os.stat_result) -> str:
    return f"file-{status.st_dev:x}-{status.st_ino:x}"


class LogLine(NamedTuple):
    """A parsed line. `facility` is 0 if no author other than the kernel is named; `host` is empty if none is."""

    text: str
    facility: int
    host: str


def parse_log_line(line: str) -> LogLine:
    """Parse one line. Pure, and strict: healthd acts on the result.

    A line is bare, has dmesg's stamp, or is syslog's: a date (RFC 3164 or ISO 8601), a host, and ``kernel:``. Other
    formats are for people, who parse them with `healthctl xid parse`.

     parse_log_line("Mar  4 12:00:00 n1 kernel: [  117.984502] NVRM: loading")
    LogLine(text='NVRM: loading', facility=0, host='n1')
    >>> parse_log_line("Mar  4 12:00:00 n1 app[77]: NVRM: loading").facility
    1
    """
    facility, host = 0, ""
    if match := _PRIORITY.match(line):
        facility = int(match["prio"]) >> 3
        line = line[match.end() :]
    if match := _DATED.match(line):
        host = match["host"]
        if match["tag"] != "kernel":
            return LogLine(line[match.end() :], facility or USER_FACILITY, host)
        line = line[match.end() :]
    if match := _STAMP.match(line):
        line = line[match.end() :]
    return LogLine(line, facility, host)

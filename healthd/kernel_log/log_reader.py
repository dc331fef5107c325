"""The kernel log of this machine, through any readable transport; reopened when it fails."""

from __future__ import annotations

import stat
from collections.abc import Iterable
from pathlib import Path

from healthd.config import LogSource
from healthd.host import SHORTAGES
from healthd.kernel_log.kmsg_device import KmsgDevice
from healthd.kernel_log.log_file import LogFile
from healthd.kernel_log.systemd_journal import COMMAND, SystemdJournal
from healthd.samples.kernel_record import Cursor, KernelBatch
from healthd.supervision.child_supervisor import END_S
from vocabulary.clock import Clock

REOPEN_S = 10.0

Transport = KmsgDevice | SystemdJournal | LogFile


class KernelLogReader:
    """Follows the log at `path`. `trouble` says why it cannot be read now; empty if it can.

    `using` is the current transport. `hosts` are this machine's names, for files that gather several.
    """

    def __init__(
        self,
        path: Path,
        boot_id: str,
        cursor: Cursor | None,
        clock: Clock,
        *,
        means: LogSource = LogSource.AUTO,
        hosts: Iterable[str] = (),
        trust_file: bool = False,
    ) -> None:
        self._path = path
        self._boot_id = boot_id
        self._cursor = cursor
        self._clock = clock
        self._means = means
        self._hosts = tuple(hosts)
        self._trust_file = trust_file
        self._transport: Transport | None = None
        self._open_at = 0.0
        self.trouble = "not opened yet"

    @property
    def source(self) -> KmsgDevice | SystemdJournal | None:
        """What to poll; None if nothing can be polled, so that the caller must read periodically."""
        return None if isinstance(self._transport, LogFile) else self._transport

    @property
    def using(self) -> str:
        """kmsg, journal or file; empty while it cannot be read."""
        names = {KmsgDevice: "kmsg", SystemdJournal: "journal", LogFile: "file"}
        return "" if self._transport is None else names[type(self._transport)]

    def read(self, limit: int) -> KernelBatch:
        """Return up to `limit` new records; empty while the log cannot be read."""
        try:
            transport = self._transport or self._open()
            batch = KernelBatch(self._cursor) if transport is None else transport.read(limit)
        except OSError as error:
            self._fail(error)
            return KernelBatch(self._cursor)
        self._cursor = batch.cursor
        return batch

    def close(self, within_s: float = END_S) -> None:
        """Close the log; wait at most `within_s` for the end of a child that reads it."""
        transport, self._transport = self._transport, None
        if isinstance(transport, SystemdJournal):
            transport.close(within_s)
        elif transport is not None:
            transport.close()

    def _open(self) -> Transport | None:
        now = self._clock.monotonic()
        if now < self._open_at:
            return None
        self._open_at = now + REOPEN_S
        self._transport = self._by_means()
        self.trouble = ""
        return self._transport

    def _by_means(self) -> Transport:
        is_device = self._path.exists() and stat.S_ISCHR(self._path.stat().st_mode)
        if self._means is LogSource.JOURNAL:
            return SystemdJournal(self._cursor)
        if self._means is LogSource.FILE or (self._means is LogSource.AUTO and not is_device):
            return LogFile(self._path, self._cursor, self._clock, self._hosts, trusted=self._trust_file)
        try:
            return KmsgDevice(self._path, self._boot_id, self._cursor, self._clock)
        except OSError as error:
            import shutil  # noqa: PLC0415 - half a megabyte that most machines never need

            # A shortage passes, and the device is then readable again: the journal is for missing permission.
            if self._means is LogSource.KMSG or error.errno in SHORTAGES or shutil.which(COMMAND[0]) is None:
                raise
            return SystemdJournal(self._cursor)

    def _fail(self, error: OSError) -> None:
        where = "the journal" if isinstance(self._transport, SystemdJournal) else str(self._path)
        self.close()
        self.trouble = f"{where}: {error.strerror}"

"""The kernel log of this machine, whichever kind of file it is; opened again when it fails."""

from __future__ import annotations

import stat
from pathlib import Path

from healthd.collectors.kmsg import KernelBatch, Kmsg
from healthd.collectors.log_file import LogFile
from healthd.samples.kernel import Cursor
from vocabulary.clock import Clock

REOPEN_S = 10.0


class KernelLog:
    """Follows the log at `path`. `trouble` says why it cannot be read at present; empty if it can."""

    def __init__(self, path: Path, boot_id: str, cursor: Cursor | None, clock: Clock) -> None:
        self._path = path
        self._boot_id = boot_id
        self._cursor = cursor
        self._clock = clock
        self._source: Kmsg | LogFile | None = None
        self._open_at = 0.0
        self.trouble = "not opened yet"

    @property
    def source(self) -> Kmsg | None:
        """What to wait for; None while there is nothing that can be waited for, and one must look."""
        return self._source if isinstance(self._source, Kmsg) else None

    def read(self, limit: int) -> KernelBatch:
        """What is new, up to `limit` records; empty while the log is in trouble."""
        try:
            source = self._source or self._open()
            batch = KernelBatch(self._cursor) if source is None else source.read(limit)
        except OSError as error:
            self._fail(error)
            return KernelBatch(self._cursor)
        self._cursor = batch.cursor
        return batch

    def close(self) -> None:
        """Let go of the log."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _open(self) -> Kmsg | LogFile | None:
        now = self._clock.monotonic()
        if now < self._open_at:
            return None
        self._open_at = now + REOPEN_S
        if self._path.exists() and stat.S_ISCHR(self._path.stat().st_mode):
            self._source = Kmsg(self._path, self._boot_id, self._cursor, self._clock)
        else:
            self._source = LogFile(self._path, self._cursor, self._clock)
        self.trouble = ""
        return self._source

    def _fail(self, error: OSError) -> None:
        self.close()
        self.trouble = f"{self._path}: {error.strerror}"

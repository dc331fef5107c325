"""An unnamed file on the file system under test, which disappears however the process ends."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import time
from pathlib import Path
from types import TracebackType

from preflight.host.host_patterns import Words, view_as_words

PAGE_BYTES = 4096
_NO_NAMELESS = (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL)


class ScratchFile:
    """An open unnamed file; `direct` if it bypasses the page cache. Times are of the call alone, in seconds."""

    def __init__(self, folder: Path) -> None:
        """Create it.

        Raises:
            OSError: the folder is missing, not writable, read-only, or full.
        """
        self._descriptor, self.direct = _open_unnamed(folder)

    def __enter__(self) -> ScratchFile:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release its blocks."""
        os.close(self._descriptor)

    def write(self, words: Words, offset: int) -> float:
        """Write all of `words` at `offset`.

        Raises:
            OSError: from the file system.
        """
        began, left = time.perf_counter(), words.data.cast("B")
        while left:
            done = os.pwrite(self._descriptor, left, offset)
            left, offset = left[done:], offset + done
        return time.perf_counter() - began

    def read(self, into: Words, offset: int) -> float:
        """Read into `into` from `offset` on.

        Raises:
            OSError: from the file system; EIO if the file ends too early.
        """
        began, left = time.perf_counter(), into.data.cast("B")
        while left:
            done = os.preadv(self._descriptor, [left], offset)
            if not done:
                raise OSError(errno.EIO, "the file is shorter than what was written to it")
            left, offset = left[done:], offset + done
        return time.perf_counter() - began

    def flush(self) -> float:
        """Wait until all data is on the device."""
        began = time.perf_counter()
        os.fdatasync(self._descriptor)
        return time.perf_counter() - began

    def forget_cached(self) -> None:
        """Drop it from the page cache, so that a read goes to the device; a network file system may ignore this."""
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def allocate_aligned_buffer(size: int) -> Words:
    """A zeroed, page-aligned buffer, as direct I/O requires."""
    return view_as_words(mmap.mmap(-1, size))


def _open_unnamed(folder: Path) -> tuple[int, bool]:
    for direct in (getattr(os, "O_DIRECT", 0), 0):
        try:
            return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC | direct, 0o600), bool(direct)
        except OSError as error:
            if error.errno not in _NO_NAMELESS or not folder.is_dir():
                raise
    return _create_and_unlink(folder)


def _create_and_unlink(folder: Path) -> tuple[int, bool]:
    """For file systems without unnamed files, such as NFS and old overlays: the name exists only briefly."""
    path = folder / f".preflight-{secrets.token_hex(8)}"
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o600), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        path.unlink(missing_ok=True)  # some create the file before they refuse
        return os.open(path, flags, 0o600), False
    finally:
        path.unlink(missing_ok=True)

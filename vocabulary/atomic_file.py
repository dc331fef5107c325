"""Replaces a file in one step: whatever crashes, its readers see the old content or the new one, never a part.

Only the standard library: training processes import it too.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

UNFINISHED = ".tmp"  # suffix of the new file until it is complete
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_SUPPORTED = {errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS}  # as some network file systems answer


def replace_file(
    path: Path, content: bytes, *, mode: int | None = None, sync_content: bool = False, sync_name: bool = False
) -> None:
    """Write a new file beside `path` and rename it to `path`. The new file's name cannot be foreseen and must be free.

    Args:
        path: the file. A symbolic link is replaced, not followed.
        content: all of it.
        mode: exact permissions; None leaves them to the umask.
        sync_content: have the content on disk before the rename, so that a power cut leaves no empty file.
        sync_name: have the rename on disk at the end, so that a power cut does not bring the old content back.

    Raises:
        OSError: `filename` is `path`. It could not be written and the old file stays; or the rename could not be synced.
    """
    aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}{UNFINISHED}")
    try:
        with open(os.open(aside, _NEW, 0o666 if mode is None else mode), "wb") as file:  # noqa: PTH123 - a descriptor
            try:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(content)
                file.flush()
                if sync_content:
                    os.fsync(file.fileno())
                aside.replace(path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
        if sync_name:
            sync_directory(path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` survive a power cut, where its file system can promise that.

    Raises:
        OSError: it cannot be opened, or its disk fails.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SUPPORTED:
            raise
    finally:
        os.close(descriptor)

"""Files and folders that only one user may access. A folder that another user created, or may enter, is rejected."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from vocabulary.atomic_file import replace_file

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def explain_untrusted_directory(folder: Path, uid: int) -> str:
    """Why `folder`, or a file in it, is not private, and what to do; empty if it is.

    Raises:
        OSError: it cannot be read.
    """
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"{folder}: is a symbolic link; use its target"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder}: is not a folder; use another --dir"
    if status.st_uid != uid:
        return f"{folder}: belongs to user {status.st_uid}, not to you; use another --dir"
    if stat.S_IMODE(status.st_mode) & 0o077:
        mode = f"{stat.S_IMODE(status.st_mode):04o}"
        return f"{folder}: accessible to other users ({mode}); run chmod 700 on it if it is yours, or use another --dir"
    return _find_foreign_file(folder, uid)


def _find_foreign_file(folder: Path, uid: int) -> str:
    """A file left by another user while the folder was open to them."""
    for place, folders, files in os.walk(folder, onerror=_raise_unless_missing):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # a running instance removes its files
                owner = os.lstat(path := os.path.join(place, name)).st_uid  # noqa: PTH118 - as `walk` names it
                if owner != uid:
                    return f"{path}: belongs to user {owner}, not to you; use another --dir"
    return ""


def _raise_unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error


def write_new(path: Path, text: str) -> None:
    """Write `text` to a new file and rename it to `path`, so that no other process holds it open."""
    replace_file(path, text.encode(), mode=FILE_MODE)


def create_if_missing(path: Path) -> None:
    """Create an empty file if none exists."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_WRONLY | _NEW, FILE_MODE))

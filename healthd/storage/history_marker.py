"""A small file beside the database. It records that this node has a history, and whether the node is condemned.

It is written apart from the database, so neither a lost nor a damaged database makes a condemned node fit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec

FILE = "history.json"


class Condemnation(msgspec.Struct, frozen=True):
    """An order named this node as one that must leave. Lifted only by a passed preflight."""

    order: str
    at: float
    reason: str


class HistoryMarker(msgspec.Struct, frozen=True):
    """`since` is when this node first kept a history, in UTC seconds; 0 if the file could not be read."""

    since: float = 0.0
    condemned: Condemnation | None = None


def read_history_marker(path: Path) -> HistoryMarker | None:
    """Return the file's content. None if there is none; an invalid file still proves that there is a history.

    Raises:
        OSError: the file exists and cannot be read.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=HistoryMarker)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError:
        return HistoryMarker()


def write_history_marker(path: Path, mark: HistoryMarker) -> None:
    """Replace the file atomically and durably.

    Raises:
        OSError: it could not be written; the old file stays.
    """
    new = path.with_name(f"{path.name}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, msgspec.json.encode(mark))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` survive a power cut, where its file system can promise that."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # some network file systems refuse it
            os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""A small file beside the database. It records that this node has a history, and whether the node is condemned.

It is written apart from the database, so neither a lost nor a damaged database makes a condemned node fit.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from vocabulary.atomic_file import replace_file

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
    replace_file(path, msgspec.json.encode(mark), mode=0o600, sync_content=True, sync_name=True)

"""Evidence bundles on the node's disk: written before they are sent, and kept a while for local use."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from pathlib import Path

from vocabulary.atomic_file import UNFINISHED, replace_file

FILES_MAX = 20
BYTES_MAX = 64 << 20
SUFFIX = ".json.gz"


class EvidenceFiles:
    """One file per order, named by the digest of its id."""

    def __init__(self, folder: Path, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._folder = folder
        self._files_max, self._bytes_max = files_max, bytes_max
        for left_over in folder.glob(f"*{UNFINISHED}"):  # of a process that was killed while writing
            with contextlib.suppress(OSError):
                left_over.unlink()

    def path(self, order: str) -> Path:
        """Return the path of the bundle for `order`."""
        return self._folder / f"{hashlib.sha256(order.encode()).hexdigest()[:32]}{SUFFIX}"

    def read(self, order: str) -> bytes | None:
        """Return the gzipped bundle for `order` if a complete one exists."""
        try:
            content = self.path(order).read_bytes()
            whole = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            return None
        return content if whole else None

    def write(self, order: str, content: bytes) -> None:
        """Store a gzipped bundle durably, deleting the oldest if needed.

        Raises:
            OSError: it cannot be stored; no partial file remains under its name.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.path(order)
        replace_file(path, content, sync_content=True, sync_name=True)
        self._prune(path)

    def _prune(self, newest: Path) -> None:
        """Delete the oldest bundles, never the one just written."""
        files = [(path.stat(), path) for path in self._folder.glob(f"*{SUFFIX}") if path != newest]
        files.sort(key=lambda file: file[0].st_mtime_ns, reverse=True)
        room, left = self._files_max - 1, self._bytes_max - newest.stat().st_size
        for status, path in files:
            room, left = room - 1, left - status.st_size
            if room < 0 or left < 0:
                path.unlink(missing_ok=True)

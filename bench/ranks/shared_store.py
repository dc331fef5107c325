"""What the ranks of one attempt share when there is no torch: counters and words in a locked file."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class SharedStore:
    """Both calls of the guard's store, each under a lock of the whole file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter that starts at 0; the new value."""
        with self._held() as held:
            value = int(held.get(key, "0")) + amount
            held[key] = str(value)
            return value

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a key that holds what is expected; what it holds now."""
        with self._held() as held:
            if held.get(key, "") == expected:
                held[key] = desired
            return held.get(key, expected).encode()

    @contextmanager
    def _held(self) -> Iterator[dict[str, str]]:
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            held: dict[str, str] = json.loads(file.read() or "{}")
            yield held
            file.truncate(0)
            file.write(json.dumps(held))

"""What the run itself did and saw, as JSON lines: one file a subject, each line with wall and monotonic time."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Journal:
    """Appends from any thread. A line is on its way to the disk before whatever it announces is done."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()

    def write(self, subject: str, **what: Any) -> None:
        """One line."""
        line = json.dumps({"at": time.time(), "mono": time.monotonic(), **what})
        with self._lock, (self.place / f"{subject}.jsonl").open("a") as file:
            file.write(f"{line}\n")

    def copy(self, subject: str, lines: Iterable[dict[str, Any]]) -> None:
        """Lines that bring their own times."""
        with self._lock, (self.place / f"{subject}.jsonl").open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)

    def read(self, subject: str) -> list[dict[str, Any]]:
        """All lines of a subject, none if nothing was said of it."""
        file = self.place / f"{subject}.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

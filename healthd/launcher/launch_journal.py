"""The launcher's own record: one JSON object per line, appended.

Timelines are drawn from it, and a requeued launcher reads from it how many attempts there were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from healthd.launcher import stderr_writer
from vocabulary.clock import Clock


class LaunchJournal:
    """Appends events to a file, if configured, and prints them on standard error."""

    def __init__(self, path: Path | None, job: str, clock: Clock) -> None:
        self.path = path
        self._job = job
        self._clock = clock
        self.observer: Callable[[Mapping[str, Any]], None] | None = None  # is given each event; must not wait

    @property
    def keeps(self) -> bool:
        """Whether what is written can be read again."""
        return self.path is not None

    def events(self) -> list[dict[str, Any]]:
        """Return this job's events, oldest first. Invalid lines are skipped."""
        found = []
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace") if self.path else ""
        except OSError:
            return []
        for line in text.splitlines():
            try:
                event = json.loads(line)
                if event["job"] == self._job and isinstance(event["event"], str):
                    found.append(event)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return found

    def last_attempt(self) -> int:
        """Return the number of this job's last attempt; 0 for none."""
        numbers = [event.get("attempt") for event in self.events() if event["event"] == "attempt_started"]
        return max((number for number in numbers if isinstance(number, int)), default=0)

    def write(self, event: str, text: str, **facts: object) -> None:
        """Write one event: `text` for people, `facts` for programs. A write error does not stop training."""
        stderr_writer.write_launcher_line(text)
        entry = {"at": self._clock.wall(), "event": event, "job": self._job, **facts, "text": text}
        if self.observer is not None:
            self.observer(entry)
        if self.path is None:
            return
        line = json.dumps(entry) + "\n"
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            stderr_writer.write_launcher_line(f"{self.path}: {error.strerror}; this event is not recorded")

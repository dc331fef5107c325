"""The launcher's own record: one JSON object per line, appended.

A timeline can be drawn from it, and a requeued launcher learns from it how many attempts there were.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from healthd.launcher import voice
from vocabulary.clock import Clock


class Journal:
    """Appends events to a file, if there is one, and says them on standard error."""

    def __init__(self, path: Path | None, job: str, clock: Clock) -> None:
        self._path = path
        self._job = job
        self._clock = clock

    def last_attempt(self) -> int:
        """The number of this job's last attempt; 0 for none. Lines that are no events are passed over."""
        last = 0
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace") if self._path else ""
        except OSError:
            return 0
        for line in text.splitlines():
            try:
                event = json.loads(line)
                if event["event"] == "attempt_started" and event["job"] == self._job:
                    last = max(last, int(event["attempt"]))
            except (ValueError, KeyError, TypeError):
                continue
        return last

    def write(self, event: str, text: str, **facts: object) -> None:
        """One event: `text` for people, `facts` for programs. A file that cannot be written stops no training."""
        voice.say(text)
        if self._path is None:
            return
        line = json.dumps({"at": self._clock.wall(), "event": event, "job": self._job, **facts, "text": text}) + "\n"
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(descriptor, line.encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            voice.say(f"{self._path}: {error.strerror}; this event is not in it")

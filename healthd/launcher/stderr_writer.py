"""Writes to standard error without blocking or failing.

Its reader may have died (`2>&1 | tee`, a closed ssh), its disk may be full, a file server may hang. None of that may
end a training job, or stop reading srun's output. So a separate thread writes, and what finds no room is dropped and
counted. It writes to the descriptor: a stream's lock, held by a hanging thread, would abort Python's exit.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections import deque

from vocabulary.text.plurals import format_count

STANDARD_ERROR = 2
ROOM_BYTES = 16 << 20  # a burst of a large job's ranks; what a slow reader does not take is lost
RETRY_SECONDS = 0.05
LAST_SECONDS = 5.0


class StderrWriter:
    """Writes to one descriptor, in order, in the background."""

    def __init__(self, descriptor: int, room_bytes: int = ROOM_BYTES) -> None:
        self._descriptor = descriptor
        self._room_bytes = room_bytes
        self._changed = threading.Condition()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0  # queued or being written
        self._dropped = 0
        self._stuck = False  # nothing was written since a wait timed out
        self._thread: threading.Thread | None = None

    def say(self, said: bytes) -> None:
        """Queue text. Returns at once; drops it if the queue is full."""
        with self._changed:
            if self._bytes + len(said) > self._room_bytes:
                self._dropped += 1
                return
            if self._dropped:
                said = (
                    f"healthctl launch: {format_count(self._dropped, 'line')} dropped: the reader was too slow\n".encode()
                    + said
                )
                self._dropped = 0
            self._waiting.append(said)
            self._bytes += len(said)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="stderr", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def drain(self, seconds: float) -> bool:
        """Wait until all is written or lost, or the time is up; return whether the queue is empty.

        Does not wait if an earlier wait timed out and nothing was written since.
        """
        with self._changed:
            drained = self._changed.wait_for(lambda: self._bytes == 0, 0 if self._stuck else seconds)
            self._stuck = not drained
            return drained

    def _write(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                said = self._waiting.popleft()
            self._write_all(said)
            with self._changed:
                self._bytes -= len(said)
                self._stuck = False
                self._changed.notify_all()

    def _write_all(self, said: bytes) -> None:
        while said:
            try:
                said = said[os.write(self._descriptor, said) :]
            except BlockingIOError:  # another program made the shared terminal non-blocking
                time.sleep(RETRY_SECONDS)
            except OSError:
                return


_voice = StderrWriter(STANDARD_ERROR)


def forward_stderr(said: bytes) -> None:
    """Write these bytes to standard error; discard them if this process was started without one (`2>&-`)."""
    if sys.__stderr__ is not None:  # otherwise the descriptor may be another file's by now
        _voice.say(said)


def write_launcher_line(text: str) -> None:
    """Write a line as the launcher."""
    forward_stderr(f"healthctl launch: {text}\n".encode(errors="replace"))


def drain_stderr() -> bool:
    """Give the last output a short time to be written; return whether it was."""
    return _voice.drain(LAST_SECONDS)


atexit.register(drain_stderr)

"""Makes slow answers outside the thread that serves the connections."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

LONG_ANSWERS_WAITING_MAX = 8


class Worker:
    """At most one thread, which ends when the queue is empty."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: deque[Callable[[], None]] = deque()
        self._running = False

    def submit(self, job: Callable[[], None]) -> bool:
        """Queue a job; return False if too many wait or no thread can be started."""
        with self._lock:
            if len(self._jobs) >= LONG_ANSWERS_WAITING_MAX:
                return False
            self._jobs.append(job)
            if not self._running:
                try:
                    threading.Thread(target=self._run, name="http-long", daemon=True).start()
                except RuntimeError:
                    self._jobs.pop()
                    return False
                self._running = True
            return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                job = self._jobs.popleft()
            job()

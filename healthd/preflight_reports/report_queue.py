"""Passes reports of preflights that others ran here from the HTTP thread to the main loop, and the result back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from healthd.samples.preflight import PreflightSample

WAITING_MAX = 64
WRITTEN_WITHIN_S = 10.0


class PreflightReportQueue:
    """A short queue. The sender waits until the findings are durable."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._heard: deque[tuple[PreflightSample, threading.Event]] = deque()

    def tell(self, sample: PreflightSample) -> bool:
        """Queue a sample; return whether its findings were stored in time. Callable from any thread."""
        if len(self._heard) >= WAITING_MAX:
            return False
        written = threading.Event()
        self._heard.append((sample, written))
        self._wake()
        return written.wait(WRITTEN_WITHIN_S)

    def take(self) -> tuple[PreflightSample, Callable[[], None]] | None:
        """Return the next sample and the callback for when its findings are durable. For the main loop."""
        if not self._heard:
            return None
        sample, written = self._heard.popleft()
        return sample, written.set

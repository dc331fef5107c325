"""Preflights that others ran on this node and tell us of: from the thread that hears them to the main loop, and back once written."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from healthd.samples.preflight import PreflightSample

WAITING_MAX = 64
WRITTEN_WITHIN_S = 10.0


class PreflightReportQueue:
    """A short queue. Who tells waits until the findings are durable."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._heard: deque[tuple[PreflightSample, threading.Event]] = deque()

    def tell(self, sample: PreflightSample) -> bool:
        """Hand one over; whether what it says was written down in time. Callable from any thread."""
        if len(self._heard) >= WAITING_MAX:
            return False
        written = threading.Event()
        self._heard.append((sample, written))
        self._wake()
        return written.wait(WRITTEN_WITHIN_S)

    def take(self) -> tuple[PreflightSample, Callable[[], None]] | None:
        """The next to be judged, and what to call once its findings are durable; for the main loop."""
        if not self._heard:
            return None
        sample, written = self._heard.popleft()
        return sample, written.set

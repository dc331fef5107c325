"""The driver's own events for Xids beside the kernel's lines: the same fault seen twice is one finding. Pure.

An event comes milliseconds after its line, tells the code only, and cannot be read again after a crash. So it waits a
little for the line, and speaks only if none comes: because the log cannot be read, or was overrun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from healthd.facts import Moment, Raise
from healthd.samples.kernel import KernelRecord
from healthd.samples.nvml import XidEvent
from vocabulary.wire import Gpu
from vocabulary.xid import format_xid

WAIT_S = 2.0  # the line is there first (18 ms on an H200), unless we are behind in reading
MEMORY_S = 10.0  # a line so old belongs to an earlier event
WAITING_MAX = 1000
DETAIL = "told by the driver through NVML; the kernel log has no line of it"


class SecondWitness:
    """Remembers lines and events for some seconds. `heard` counts the events, `alone` those that had no line."""

    def __init__(self, boot_id: str) -> None:
        self._source = f"{boot_id}:nvml"
        self._lines: dict[tuple[str, str], float] = {}
        self._waiting: deque[tuple[float, str, XidEvent]] = deque(maxlen=WAITING_MAX)
        self.heard = self.alone = 0

    def saw_line(self, fact: Raise, now: Moment) -> None:
        """The kernel log told of this Xid."""
        if not fact.injected:
            self._lines[fact.component.pci, fact.code] = now.monotonic
            if len(self._lines) > WAITING_MAX:
                del self._lines[next(iter(self._lines))]

    def heard_event(self, event: XidEvent, gpus: Mapping[int, Gpu], now: Moment) -> None:
        """The driver told of this Xid."""
        self.heard += 1
        gpu = None if event.index is None else gpus.get(event.index)
        self._waiting.append((now.monotonic, gpu.pci if gpu else "", event))

    def records_due(self, now: Moment) -> list[KernelRecord]:
        """For each event whose time is up without a line: the line as it would have been."""
        records = []
        while self._waiting and self._waiting[0][0] + WAIT_S <= now.monotonic:
            heard_at, pci, event = self._waiting.popleft()
            line_at = self._lines.get((pci, str(event.code)))
            if pci and (line_at is None or line_at < heard_at - MEMORY_S):
                self.alone += 1
                text = format_xid(event.code, pci, detail=DETAIL)
                records.append(KernelRecord(self._source, int(event.at * 1e6), event.at, 0, text))
        return records

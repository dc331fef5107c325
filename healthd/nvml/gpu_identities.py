"""Checks that the GPUs are still those that were enumerated: the count each time, one identity at a time."""

from __future__ import annotations

from collections.abc import Sequence

import pynvml

from healthd.nvml.gpu_device import GpuDevice
from healthd.nvml.reading_tiers import RARELY_S
from healthd.nvml.round_robin import RoundRobin
from healthd.supervision.child_call_page import ChildCallPage


class GpuIdentities:
    """`count` GPUs were enumerated at `began` (monotonic seconds); `devices` are those that are not left out."""

    def __init__(self, devices: Sequence[GpuDevice], count: int, call_page: ChildCallPage, began: float) -> None:
        self._devices = devices
        self._enumerated = count
        self._call_page = call_page
        self._known = [device.identity() for device in devices]
        turns = max(1, len(devices))  # the first GPU may appear where there was none
        self._rota = RoundRobin(turns, RARELY_S, first_s=RARELY_S, began=began + RARELY_S / turns)

    def change(self, now: float) -> str | None:
        """Describe what has changed, or return None. A GPU that does not answer is no change."""
        for number in self._rota.turns(now):
            change = self._count() or (self._other(number) if number < len(self._devices) else None)
            if change is not None:
                return change
        return None

    def _count(self) -> str | None:
        self._call_page.write(None, "nvmlDeviceGetCount")
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError:
            return None
        return None if count == self._enumerated else f"the driver has {count} GPUs, and had {self._enumerated}"

    def _other(self, number: int) -> str | None:
        before, now, index = self._known[number], self._devices[number].identity(), self._devices[number].index
        if now is None or now == before:
            return None
        if before is None:
            return f"GPU {index} now reports its identity: {now[0]}"
        return f"GPU {index} is {' '.join((now[0], *now[1]))}, and was {' '.join((before[0], *before[1]))}"

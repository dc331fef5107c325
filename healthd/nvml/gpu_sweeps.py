"""Sweeps over all GPUs, with expensive readings spread over many sweeps, until there is a reason to stop."""

from __future__ import annotations

import math
import os
import select
import time
from collections.abc import Callable, Sequence

from healthd.nvml.gpu_device import GpuDevice, Message
from healthd.nvml.gpu_identities import GpuIdentities
from healthd.nvml.reading_tiers import OFTEN_S, RARELY_S
from healthd.nvml.round_robin import RoundRobin
from healthd.supervision.child_call_page import ChildCallPage

LOOK_AFTER_S = (0.0, 0.05, 0.2, 1.0)  # the driver's flag may follow its kernel line
FIRST_ROUND_S = 5.0  # by then every GPU has been read in full once

Send = Callable[[Message], None]


class GpuSweeper:
    """Reads all `devices` in turn: cheap values each time, the others when they are due."""

    def __init__(self, devices: Sequence[GpuDevice]) -> None:
        self._devices = devices
        began = time.monotonic()
        self._often = RoundRobin(len(devices), OFTEN_S, first_s=0.0, began=began)
        self._rarely = RoundRobin(len(devices), RARELY_S, first_s=FIRST_ROUND_S, began=began)
        self._looks: list[float] = []  # when to read the fault counters, because the kernel log reported something

    @property
    def next_look(self) -> float:
        """Return the time of the next extra reading in monotonic seconds; infinite if none is due."""
        return self._looks[0] if self._looks else math.inf

    def look(self) -> None:
        """Read all fault counters now and several times more; the expensive ones only the last time."""
        now = time.monotonic()
        self._looks = [now + after_s for after_s in LOOK_AFTER_S]

    def sweep(self) -> Message:
        """Read all GPUs once and return a `Sweep`."""
        began = time.monotonic()
        looking = self.next_look <= began
        self._looks = [at for at in self._looks if at > began]
        last_look = looking and not self._looks
        often, rarely = self._often.turns(began), self._rarely.turns(began)
        readings = [
            device.read(often=looking or number in often, grave=last_look, rarely=number in rarely)
            for number, device in enumerate(self._devices)
        ]
        return {"type": "Sweep", "at": time.time(), "seconds": time.monotonic() - began, "readings": readings}


def sweep_until_stopped(
    devices: Sequence[GpuDevice], identities: GpuIdentities, interval_s: float, slate: ChildCallPage, send: Send
) -> None:
    """Sweep until standard input ends or the GPUs change, which is sent as a message."""
    due = time.monotonic()
    sweeps = GpuSweeper(devices)
    while True:
        began = time.monotonic()
        send(sweeps.sweep())
        change = identities.change(began)
        if change is not None:
            send({"type": "GpusChanged", "at": time.time(), "reason": change})
            return
        slate.write(None, "")
        if began >= due:
            due = max(due + interval_s, time.monotonic())
        if select.select([0], [], [], max(0.0, min(due, sweeps.next_look) - time.monotonic()))[0]:
            if not os.read(0, 64):
                return
            sweeps.look()

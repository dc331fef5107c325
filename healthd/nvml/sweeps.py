"""Sweep after sweep over all GPUs, the dear readings spread thinly, until there is a reason to end."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pynvml

from healthd.nvml.device import Device, Message
from healthd.nvml.rota import Rota
from healthd.nvml.tiers import OFTEN_S, RARELY_S
from healthd.slate import Slate

LOOK_AFTER_S = (0.0, 0.05, 0.2, 1.0)  # the driver's flag may follow its kernel line
FIRST_ROUND_S = 5.0  # by then every GPU has been read in full once

Send = Callable[[Message], None]


class _Look(NamedTuple):
    """When to read what shows faults, because the kernel log has told of something."""

    at: float
    last: bool


def sweep_until_told(devices: Sequence[Device], interval_s: float, slate: Slate, send: Send) -> None:
    """Return when standard input ends, or the GPUs are no longer those that were enumerated, which is said."""
    began = due = time.monotonic()
    members = len(devices)
    often = Rota(members, OFTEN_S, first_s=0.0, began=began)
    rarely = Rota(members, RARELY_S, first_s=FIRST_ROUND_S, began=began)
    identity = Rota(members, RARELY_S, first_s=RARELY_S, began=began + RARELY_S / max(1, members))
    identities = [device.identity() for device in devices]
    looks: list[_Look] = []
    while True:
        started = time.monotonic()
        now = [look for look in looks if look.at <= started]
        looks = [look for look in looks if look.at > started]
        often_now, rarely_now = often.turns(started), rarely.turns(started)
        readings = [
            device.read(
                often=bool(now) or number in often_now,
                grave=any(look.last for look in now),
                rarely=number in rarely_now,
            )
            for number, device in enumerate(devices)
        ]
        send({"type": "Sweep", "at": time.time(), "seconds": time.monotonic() - started, "readings": readings})
        for number in identity.turns(started):
            reason = _change(devices, number, identities[number], slate)
            if reason:
                send({"type": "GpusChanged", "at": time.time(), "reason": reason})
                return
        slate.write(None, "")
        if started >= due:
            due = max(due + interval_s, time.monotonic())
        wait_s = max(0.0, min([due, *(look.at for look in looks)]) - time.monotonic())
        if select.select([0], [], [], wait_s)[0]:
            if not os.read(0, 64):
                return
            told = time.monotonic()
            looks = [_Look(told + after_s, after_s == LOOK_AFTER_S[-1]) for after_s in LOOK_AFTER_S]


def _change(
    devices: Sequence[Device], number: int, known: tuple[str, tuple[str, ...]] | None, slate: Slate
) -> str | None:
    """What is no longer as it was enumerated; a GPU that does not answer proves nothing."""
    slate.write(None, "nvmlDeviceGetCount")
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        count = len(devices)
    if count != len(devices):
        return f"the driver has {count} GPUs, and had {len(devices)}"
    identity = devices[number].identity()
    if identity is None or identity == known:
        return None
    if known is None:
        return f"GPU {number} says now who it is: {identity[0]}"
    return f"GPU {number} is {' '.join((identity[0], *identity[1]))}, and was {' '.join((known[0], *known[1]))}"

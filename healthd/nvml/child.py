"""The NVML child: sweeps over all GPUs, with expensive readings spread over many sweeps.

    python -m healthd.nvml.child CALL_PAGE_FD LIBRARY INTERVAL_S [LEFT_OUT]

An empty LIBRARY lets pynvml find it. LEFT_OUT are the indices, such as "3,5", of GPUs on which an earlier child hung:
no call is made on them.

Writes one JSON line for the inventory, then one for each sweep and each Xid event: the messages of
`healthd.samples.nvml`, which it does not import. Before every call it notes GPU and call on the call page, which is
shared memory and costs no system call: when a sweep never ends, the parent reads there where it hangs. A byte on
standard input requests sweeps now; end of input means that the parent has exited.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

import pynvml

from healthd.nvml.gpu_constants import read_driver_versions
from healthd.nvml.gpu_device import GpuDevice, Message
from healthd.nvml.gpu_identities import GpuIdentities
from healthd.nvml.reading_tiers import OFTEN_S, RARELY_S
from healthd.nvml.round_robin import RoundRobin
from healthd.nvml.xid_events import start_xid_listener
from healthd.supervision.child_call_page import ChildCallPage

LOOK_AFTER_S = (0.0, 0.05, 0.2, 1.0)  # the driver's flag may follow its kernel line
FIRST_ROUND_S = 5.0  # by then every GPU has been read in full once

Send = Callable[[Message], None]
_PR_SET_PDEATHSIG = 1


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
            device.read(often=looking or number in often, faults=last_look, rarely=number in rarely)
            for number, device in enumerate(self._devices)
        ]
        return {"type": "Sweep", "at": time.time(), "seconds": time.monotonic() - began, "readings": readings}


def sweep_until_stopped(
    devices: Sequence[GpuDevice], identities: GpuIdentities, interval_s: float, call_page: ChildCallPage, send: Send
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
        call_page.write(None, "")
        if began >= due:
            due = max(due + interval_s, time.monotonic())
        if select.select([0], [], [], max(0.0, min(due, sweeps.next_look) - time.monotonic()))[0]:
            if not os.read(0, 64):
                return
            sweeps.look()


def main(arguments: list[str]) -> int:
    """Sweep until the parent exits or the GPUs change. Return 3 if NVML cannot be used."""
    call_page, library, interval_s = ChildCallPage(int(arguments[0])), arguments[1], float(arguments[2])
    avoided = {int(index) for index in arguments[3].split(",") if index} if len(arguments) > 3 else set()
    if not set_parent_death_signal():
        return 0
    send = _make_sender(threading.Lock())
    try:
        load_driver(library, call_page)
        count = pynvml.nvmlDeviceGetCount()
        left_out = sorted(index for index in avoided if index < count)
        devices = [GpuDevice(index, call_page) for index in range(count) if index not in avoided]
        identities = GpuIdentities(
            devices, count, call_page, time.monotonic()
        )  # before the names, so that a GPU that appears in between is noticed
        names = [device.names() for device in devices]
        answering = [device for device, name in zip(devices, names, strict=True) if name is not None]
        inventory: Message = {"type": "Inventory", "count": count, "gpus": [name for name in names if name]}
        inventory |= (
            {"left_out": left_out}
            | read_driver_versions()
            | {"constants": [device.constants() for device in answering]}
        )
    except (pynvml.NVMLError, OSError, ValueError) as error:
        reason = f"{error}{'' if not library else f' ({library})'}"
        send({"type": "NvmlUnavailable", "at": time.time(), "reason": reason})
        return 3
    start_xid_listener(answering, call_page, send)
    send(inventory)
    sweep_until_stopped(devices, identities, interval_s, call_page, send)
    return 0


def set_parent_death_signal() -> bool:
    """Make the kernel kill this process when its parent dies; return whether the parent is still alive."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung call would never see the end of its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a terminal's Ctrl-C
    return os.getppid() == parent


def load_driver(library: str, call_page: ChildCallPage) -> None:
    """Load and initialise the driver's library, from the given path or as pynvml finds it.

    Raises:
        NVMLError, OSError: it cannot be used.
    """
    if library:  # pynvml loads by bare name and reuses a library that is already loaded
        pynvml.nvmlLib = ctypes.CDLL(library)
    call_page.write(None, "nvmlInit")
    pynvml.nvmlInit()
    call_page.write(None, "nvmlDeviceGetCount")


def _make_sender(lock: threading.Lock) -> Callable[[Message], None]:
    """Return a function that writes a message as one line; sweeps and events come from different threads."""
    encode = json.JSONEncoder(separators=(",", ":")).encode

    def send(message: Message) -> None:
        line = memoryview(encode(message).encode() + b"\n")
        with lock:
            while line:
                try:
                    line = line[os.write(1, line) :]
                except BrokenPipeError:
                    os._exit(0)  # the parent was killed, and the kernel is about to kill this process

    return send


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a regular exit would wait for the driver's library

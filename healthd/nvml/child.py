"""The NVML child's main loop.

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
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import pynvml

from healthd.nvml.gpu_constants import read_driver_versions
from healthd.nvml.gpu_device import GpuDevice, Message
from healthd.nvml.gpu_identities import GpuIdentities
from healthd.nvml.gpu_sweeps import sweep_until_stopped
from healthd.nvml.xid_events import start_xid_listener
from healthd.supervision.child_call_page import ChildCallPage

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Sweep until the parent exits or the GPUs change. Return 3 if NVML cannot be used."""
    slate, library, interval_s = ChildCallPage(int(arguments[0])), arguments[1], float(arguments[2])
    avoided = {int(index) for index in arguments[3].split(",") if index} if len(arguments) > 3 else set()
    if not set_parent_death_signal():
        return 0
    send = _make_sender(threading.Lock())
    try:
        load_driver(library, slate)
        count = pynvml.nvmlDeviceGetCount()
        left_out = sorted(index for index in avoided if index < count)
        devices = [GpuDevice(index, slate) for index in range(count) if index not in avoided]
        identities = GpuIdentities(
            devices, count, slate, time.monotonic()
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
    start_xid_listener(answering, slate, send)
    send(inventory)
    sweep_until_stopped(devices, identities, interval_s, slate, send)
    return 0


def set_parent_death_signal() -> bool:
    """Make the kernel kill this process when its parent dies; return whether the parent is still alive."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung call would never see the end of its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a terminal's Ctrl-C
    return os.getppid() == parent


def load_driver(library: str, slate: ChildCallPage) -> None:
    """Load and initialise the driver's library, from the given path or as pynvml finds it.

    Raises:
        NVMLError, OSError: it cannot be used.
    """
    if library:  # pynvml loads by bare name and reuses a library that is already loaded
        pynvml.nvmlLib = ctypes.CDLL(library)
    slate.write(None, "nvmlInit")
    pynvml.nvmlInit()
    slate.write(None, "nvmlDeviceGetCount")


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

"""Xid events from the driver, received in a thread: a second evidence source beside the kernel log.

The wait does not touch the call page, which shows where the sweep hangs. The thread is a daemon thread and holds
nothing that would keep the process alive; if it hangs in the driver, only this source is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from ctypes import c_void_p, cast
from typing import Any

import pynvml

from healthd.nvml.gpu_device import GpuDevice, GpuLost, Message
from healthd.supervision.child_call_page import ChildCallPage

WAIT_MS = 60_000
BREATH_S = 0.02  # after each event, so that a storm uses no full core here or in the parent
PAUSE_S_MIN, PAUSE_S_MAX = 1.0, 60.0  # after an error, which may recur at once, as for a lost GPU

Send = Callable[[Message], None]


def start_xid_listener(devices: Iterable[GpuDevice], call_page: ChildCallPage, send: Send) -> None:
    """Send an `XidEvent` for each event from now on. Does nothing if the driver has no events."""
    try:
        call_page.write(None, "nvmlEventSetCreate")
        events = pynvml.nvmlEventSetCreate()
    except pynvml.NVMLError:
        return
    indices: dict[int | None, int] = {}
    for device in devices:
        try:
            handle = device.handle()
            call_page.write(device.index, "nvmlDeviceRegisterEvents")
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
        except (pynvml.NVMLError, GpuLost):
            continue
        indices[_handle_address(handle)] = device.index
    if indices:
        threading.Thread(target=_forward_events, args=(events, indices, send), daemon=True).start()


def _forward_events(events: Any, indices: dict[int | None, int], send: Send) -> None:
    pause_s = PAUSE_S_MIN
    while True:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError_Timeout:
            pause_s = PAUSE_S_MIN
        except pynvml.NVMLError_FunctionNotFound:
            return
        except pynvml.NVMLError:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        else:
            pause_s = PAUSE_S_MIN
            index = indices.get(_handle_address(event.device))
            send({"type": "XidEvent", "at": time.time(), "index": index, "code": event.eventData})
            time.sleep(BREATH_S)


def _handle_address(handle: Any) -> int | None:
    """Return the handle's address: handles are pointers, and the driver returns the same one each time."""
    return cast(handle, c_void_p).value

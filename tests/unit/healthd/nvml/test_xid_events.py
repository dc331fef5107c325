from __future__ import annotations

import ctypes
import queue
import threading
from typing import Any

import pynvml
import pytest

from healthd.nvml.gpu_device import GpuDevice
from healthd.nvml.xid_events import start_xid_listener
from healthd.supervision.child_call_page import ChildCallPage

TIMEOUT, GONE, NOT_SUPPORTED = 10, 13, 3


@pytest.fixture
def devices(driver: Any, call_page: ChildCallPage) -> list[GpuDevice]:
    """Three GPUs; the handle of GPU i is 0x1000 + i."""

    def handle(index: Any, to: Any) -> int:
        point(to._obj, 0x1000 + index.value)
        return 0

    driver.calls["nvmlDeviceGetHandleByIndex_v2"] = handle
    return [GpuDevice(index, call_page) for index in range(3)]


def point(to: Any, address: int) -> None:
    ctypes.memmove(ctypes.addressof(to), ctypes.byref(ctypes.c_void_p(address)), ctypes.sizeof(ctypes.c_void_p))


def test_an_xid_is_told_with_its_gpu_until_the_driver_has_no_more(
    driver: Any, devices: list[GpuDevice], call_page: ChildCallPage
) -> None:
    events = iter([(TIMEOUT, 0, 0), (0, 0x1002, 79), (TIMEOUT, 0, 0), (0, 0x9999, 48), (GONE, 0, 0)])
    told: queue.Queue[dict[str, Any]] = queue.Queue()

    def wait(_set: Any, to: Any, _ms: Any) -> int:
        result, address, code = next(events)
        point(to._obj, address)
        to._obj.eventData = code
        return result

    driver.calls |= {
        "nvmlEventSetCreate": lambda _to: 0,
        "nvmlDeviceRegisterEvents": lambda handle, _types, _set: NOT_SUPPORTED if _is(handle, 0x1001) else 0,
        "nvmlEventSetWait_v2": wait,
    }
    start_xid_listener(devices, call_page, told.put)
    first, second = told.get(timeout=90), told.get(timeout=30)
    assert (first["type"], first["index"], first["code"]) == ("XidEvent", 2, 79)
    assert (second["index"], second["code"]) == (None, 48), "of a GPU that is not among ours"
    assert driver.asked.count("nvmlDeviceRegisterEvents") == 3


def _is(handle: Any, address: int) -> bool:
    return bool(ctypes.cast(handle, ctypes.c_void_p).value == address)


def test_without_events_there_is_no_thread(driver: Any, devices: list[GpuDevice], call_page: ChildCallPage) -> None:
    before = threading.active_count()
    start_xid_listener(devices, call_page, lambda _: None)
    driver.calls |= {
        "nvmlEventSetCreate": lambda _to: 0,
        "nvmlDeviceRegisterEvents": lambda _handle, _types, _set: NOT_SUPPORTED,
    }
    pynvml._nvmlGetFunctionPointer_cache.clear()
    start_xid_listener(devices, call_page, lambda _: None)
    assert threading.active_count() == before
    assert "nvmlEventSetWait_v2" not in driver.asked

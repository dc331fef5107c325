"""What is asked of a driver, what its answers and refusals become, and what is not asked again."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pynvml
import pytest

from healthd.nvml.field_values import FieldValues
from healthd.nvml.gpu_device import GpuDevice
from healthd.nvml.gpu_processes import make_process_query, read_mig_state
from healthd.nvml.gpu_reading import make_fallback_query
from healthd.nvml.nvlink_counters import NvLinks
from healthd.nvml.pci_address import format_pci_address
from healthd.nvml.reading_tiers import GpuActivity, make_fabric_query
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, Link, Process, Sweep
from healthd.supervision.child_call_page import ChildCallPage
from vocabulary.messages.wire import Gpu

HANDLE = pynvml.c_nvmlDevice_t()
UNKNOWN, LOST, INVALID, NOT_SUPPORTED, TOO_SMALL = 999, 15, 2, 3, 7


def test_a_field_that_is_not_there_is_not_asked_again_and_one_that_fails_is(driver: Any) -> None:
    fields = FieldValues({"good": (1,), "absent": (2,), "unknown_number": (3,), "failing": (4,)})
    driver.fields = {(1, 0): (0, 7), (3, 0): (INVALID, 0), (4, 0): (UNKNOWN, 0)}
    assert fields(HANDLE) == {"good": 7, "errors": {"failing": "Unknown Error"}}
    driver.asked.clear()
    driver.fields[4, 0] = (0, 8)
    assert fields(HANDLE) == {"good": 7, "failing": 8}
    assert driver.asked == ["nvmlDeviceGetFieldValues", (1, 0), (4, 0)]


def test_of_several_numbers_the_best_one_that_is_there_is_kept(driver: Any) -> None:
    driver.fields = {(2, 5): (0, 20), (3, 5): (0, 30)}
    fields = FieldValues({"errors_seen": (1, 2, 3)}, scope=5)
    assert fields(HANDLE) == {"errors_seen": 20}
    driver.asked.clear()
    assert fields(HANDLE) == {"errors_seen": 20}
    assert driver.asked == ["nvmlDeviceGetFieldValues", (2, 5)]


def test_where_no_number_holds_a_name_the_older_call_is_made(driver: Any) -> None:
    fields = FieldValues({"energy": (1,), "replays": (2,)})
    older = fields.or_else({"energy": lambda _: 100, "replays": lambda _: 200})
    driver.fields = {(1, 0): (0, 7)}
    fields(HANDLE)
    assert [(reading.name, reading.ask(HANDLE)) for reading in older] == [("energy", {}), ("replays", 200)]
    del driver.calls["nvmlDeviceGetFieldValues"]
    pynvml._nvmlGetFunctionPointer_cache.clear()
    without = FieldValues({"energy": (1,)})
    assert without(HANDLE) == {}
    assert without.or_else({"energy": lambda _: 100})[0].ask(HANDLE) == 100


def test_a_lost_gpu_is_lost_also_if_only_one_field_says_so(driver: Any) -> None:
    driver.fields = {(1, 0): (LOST, 0)}
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        FieldValues({"any": (1,)})(HANDLE)


def test_older_names_are_tried_once(driver: Any) -> None:
    driver.answers("nvmlDeviceGetPowerUsage", 5)
    ask = make_fallback_query(pynvml.nvmlDeviceGetMarginTemperature, pynvml.nvmlDeviceGetPowerUsage)
    assert [ask(HANDLE), ask(HANDLE)] == [5, 5]
    absent = make_fallback_query(pynvml.nvmlDeviceGetMarginTemperature, pynvml.nvmlDeviceGetEnforcedPowerLimit)
    with pytest.raises(pynvml.NVMLError_FunctionNotFound):
        absent(HANDLE)


def link_states(driver: Any, states: dict[int, tuple[int, int]]) -> None:
    def state(_handle: Any, link: int, to: Any) -> int:
        result, to._obj.value = states.get(link, (INVALID, 0))
        return result

    def remote(_handle: Any, link: int, to: Any) -> int:
        to._obj.domain, to._obj.bus, to._obj.device = (1, 0xCD, link) if link < 2 else (0xFFFFFFFF,) * 3
        return 0

    driver.calls["nvmlDeviceGetNvLinkState"] = state
    driver.calls["nvmlDeviceGetNvLinkRemotePciInfo_v2"] = remote


def test_links_say_where_they_lead_and_count_by_generation(driver: Any) -> None:
    link_states(driver, {0: (0, 1), 1: (0, 0), 3: (0, 1)})
    hopper = {163: 4, 161: 5, 162: 6, 139: 700, 138: 800}
    blackwell = {221: 1, 215: 2, 204: 4096, 202: 8192}
    driver.fields = {(n, 0): (0, v) for n, v in hopper.items()} | {(n, 3): (0, v) for n, v in blackwell.items()}
    links = NvLinks()
    assert links(HANDLE) == [
        {
            "link": 0,
            "active": True,
            "traffic_disabled": False,
            "remote": "0001:cd:00.0",
            "crc_errors": 4,
            "replay_errors": 5,
            "recovery_errors": 6,
            "rx_kib": 700,
            "tx_kib": 800,
        },
        {"link": 1, "active": False, "traffic_disabled": False, "remote": ""},
        {"link": 3, "active": True, "traffic_disabled": False, "remote": ""}
        | {"crc_errors": 1, "recovery_errors": 2, "rx_kib": 4, "tx_kib": 8},
    ]


def test_the_states_of_a_link_and_what_they_mean(driver: Any) -> None:
    link_states(driver, {number: (0, number) for number in range(5)})
    said = [(link["active"], link["traffic_disabled"]) for link in NvLinks()(HANDLE)]
    assert said == [(False, False), (True, False), (True, False), (False, True), (None, False)], (
        "3: trained, no traffic"
    )


def test_a_link_that_comes_up_is_asked_for_its_counters_again(driver: Any) -> None:
    link_states(driver, {0: (0, 0)})
    links = NvLinks()
    assert "crc_errors" not in links(HANDLE)[0]
    driver.fields = {(163, 0): (0, 4)}
    assert "crc_errors" not in links(HANDLE)[0]
    link_states(driver, {0: (0, 1)})
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert links(HANDLE)[0]["crc_errors"] == 4


def test_one_link_that_fails_spares_the_others_and_a_lost_gpu_is_lost(driver: Any) -> None:
    link_states(driver, {0: (0, 1), 1: (0, 1)})
    links = NvLinks()
    links(HANDLE)
    link_states(driver, {0: (UNKNOWN, 0), 1: (0, 1)})
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert [(link["link"], link["active"]) for link in links(HANDLE)] == [(0, None), (1, True)]
    link_states(driver, {0: (LOST, 0)})
    pynvml._nvmlGetFunctionPointer_cache.clear()
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        links(HANDLE)


def test_a_gpu_without_links_is_not_asked_for_them_again(driver: Any) -> None:
    link_states(driver, {})
    with pytest.raises(pynvml.NVMLError_NotSupported):
        NvLinks()(HANDLE)


def test_activity_is_the_mean_between_two_samples(driver: Any) -> None:
    def support(_handle: Any, to: Any) -> int:
        to._obj.isSupportedDevice = 1
        return 0

    def metrics(request: Any) -> int:
        for number, metric in enumerate(request._obj.metrics[: request._obj.numMetrics]):
            metric.nvmlReturn, metric.value = (UNKNOWN, 0.0) if number == 1 else (0, float("nan") if number else 62.5)
        return 0

    driver.calls |= {
        "nvmlGpmQueryDeviceSupport": support,
        "nvmlGpmSampleAlloc": lambda _to: 0,
        "nvmlGpmSampleGet": lambda _handle, _sample: 0,
        "nvmlGpmMetricsGet": metrics,
    }
    activity = GpuActivity()
    assert activity(HANDLE) == {}
    assert activity(HANDLE) == {"sm_active_percent": 62.5}
    activity(HANDLE)
    assert driver.asked.count("nvmlGpmSampleAlloc") == 2


def test_a_gpu_without_a_fabric_has_no_state_of_it(driver: Any) -> None:
    def info(state: int, mask: int) -> Any:
        def call(_handle: Any, to: Any) -> int:
            to._obj.state, to._obj.status, to._obj.healthMask = state, 0, mask
            return 0

        return call

    driver.calls["nvmlDeviceGetGpuFabricInfoV"] = info(3, 0x55)
    assert make_fabric_query()(HANDLE) == {"fabric_state": 3, "fabric_status": 0, "fabric_health_mask": 0x55}
    driver.calls = {"nvmlDeviceGetGpuFabricInfo": info(2, 0)}
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert make_fabric_query()(HANDLE) == {"fabric_state": 2, "fabric_status": 0}
    driver.calls = {"nvmlDeviceGetGpuFabricInfo": info(0, 0)}
    pynvml._nvmlGetFunctionPointer_cache.clear()
    with pytest.raises(pynvml.NVMLError_NotSupported):
        make_fabric_query()(HANDLE)


def test_processes_and_parts(driver: Any) -> None:
    def running(_handle: Any, count: Any, to: Any) -> int:
        if to is None:
            count._obj.value = 2
            return TOO_SMALL
        count._obj.value = 2
        (to[0].pid, to[0].usedGpuMemory), (to[1].pid, to[1].usedGpuMemory) = (7, 1 << 30), (8, (1 << 64) - 1)
        return 0

    driver.calls["nvmlDeviceGetComputeRunningProcesses_v3"] = running
    assert make_process_query()(HANDLE) == [{"pid": 7, "memory_bytes": 1 << 30}, {"pid": 8, "memory_bytes": None}]
    driver.answers("nvmlDeviceGetMigMode", 0, 1)
    assert read_mig_state(HANDLE) == {"mig_enabled": False}


def test_a_driver_that_knows_everything_fills_every_field(driver: Any, call_page: ChildCallPage) -> None:
    driver.answers_everything()
    device = GpuDevice(0, call_page)
    assert set(device.names() or ()) == set(Gpu.__struct_fields__)
    assert set(device.constants()) == set(GpuConstants.__struct_fields__)
    device.read(often=True, faults=True, rarely=True)
    reading = device.read(often=True, faults=True, rarely=True)
    assert set(GpuReading.__struct_fields__) - set(reading) == {"lost", "errors"}
    assert set(reading) <= set(GpuReading.__struct_fields__)
    assert set(reading["links"][0]) == set(Link.__struct_fields__)
    assert set(reading["processes"][0]) == set(Process.__struct_fields__)
    message = json.dumps({"type": "Sweep", "at": 1.0, "seconds": 0.1, "readings": [reading]})
    assert msgspec.json.decode(message, type=Sweep).readings[0].remap_histogram == (1, 1, 1, 1, 1)
    message = json.dumps({"type": "Inventory", "driver": "", "count": 1, "gpus": [], "constants": [device.constants()]})
    assert msgspec.json.decode(message, type=Inventory).constants[0].mig_devices


def test_a_device_names_what_fails_and_remembers_what_is_absent(driver: Any, call_page: ChildCallPage) -> None:
    device = GpuDevice(3, call_page)
    driver.calls["nvmlDeviceGetHandleByIndex_v2"] = lambda _index, _to: 0
    driver.answers("nvmlDeviceGetTemperature", 55)
    driver.answers("nvmlDeviceGetClockInfo", result=NOT_SUPPORTED)
    driver.answers("nvmlDeviceGetPowerUsage", result=UNKNOWN)
    read = {"often": False, "faults": False, "rarely": False}
    said = {"index": 3, "temperature_c": 55, "errors": {"power_mw": "Unknown Error"}}
    assert device.read(**read) == said
    driver.asked.clear()
    assert device.read(**read) == said
    assert driver.asked == ["nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage"]
    driver.answers("nvmlDeviceGetTemperature", result=LOST)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert device.read(**read) == {"index": 3, "lost": True}
    driver.answers("nvmlDeviceGetTemperature", 56)
    driver.answers("nvmlDeviceGetClockInfo", 1980)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert device.read(**read)["sm_clock_mhz"] == 1980, "a dying GPU's word for what it lacks is not kept"
    assert driver.asked.count("nvmlDeviceGetHandleByIndex_v2") == 1, "and its handle is fetched again"


def test_an_address_without_a_device_is_none() -> None:
    info = pynvml.nvmlPciInfo_t(domain=0x10, bus=0xAB, device=0)
    assert format_pci_address(info) == "0010:ab:00.0"
    assert format_pci_address(pynvml.nvmlPciInfo_t(domain=0xFFFFFFFF, bus=0xFFFFFFFF, device=0xFFFFFFFF)) == ""

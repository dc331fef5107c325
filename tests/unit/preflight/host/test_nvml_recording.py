"""Readers see the same from a recorded driver as from the driver itself, though its answers went through a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from preflight.check_context import Context
from preflight.checks.gpu_state import check_gpu_state
from preflight.checks.nvlink_state import NvLinkReader
from preflight.execution.gpu_inventory import read_gpu_inventory
from preflight.execution.nvml_queries import list_recorded_devices, record_nvml_answers
from preflight.host.counter_reader import HardwareCounterReader
from preflight.host.gpu_pcie_link import read_pcie_link
from preflight.host.load_sensors import open_gpu_sensors
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError, substitute_nvml
from preflight.host.nvml_recording import NvmlRecording, ReplayedNvml
from preflight.host.software_inventory import read_installed_software
from preflight.platform_measurement import day_runs
from preflight.results import Outcome
from vocabulary.clock import SystemClock
from vocabulary.hardware.machine_files import Machine

Say = Callable[[Sequence[str]], None]
STATES = [  # what readers must tell apart: values, errors, states, counts of links, a GPU that is lost
    "gpus 3",
    "ecc_corrected_dram.0 5",
    "remap_uncorrected.0 4",
    "pending.1 1",
    "recovery_action.1 2",
    "nvlink_replays.5.0 8",
    "pcie_width.1 8",
    "pcie_replays.0 7",
    "throttle.1 0x80",
    "error_pcie_replays.1 3",
    "error_handle.2 15",
]


def ignore(_: str) -> None:
    pass


def read_everything() -> dict[str, Any]:
    devices = list_recorded_devices(ignore)
    context = Context(device=None, devices=devices, level="gate", seconds=1.0, fault="", note=ignore)
    driver = NvmlDriver()
    counters = HardwareCounterReader(ignore)
    uuids = [device.uuid for device in devices]
    gpus = [driver.gpu(uuid) for uuid in uuids]
    sensors = [open_gpu_sensors(driver, gpu) for gpu in gpus]
    software = read_installed_software(Machine(Path("/nowhere")), ignore)
    links = [NvLinkReader(device, devices, ignore) for device in devices]
    return {
        "inventory": read_gpu_inventory(ignore),
        "state": list(check_gpu_state(context)),
        "counters": [counters.read(uuids, None).gpus for _ in range(2)],  # the second asks for fewer fields
        "links": [link.read() for link in links],
        "media": [link.medium(peer) for link in links for peer in devices],
        "pcie": [read_pcie_link(Machine(Path("/nowhere")), driver, gpu, driver.address(gpu)) for gpu in gpus],
        "sensors": [(read(0.0, False), limits) for read, limits in sensors],
        "software": (software.gpus, software.machine.get("driver"), software.machine.get("cuda_driver")),
    }


def send(recording: NvmlRecording, path: Path) -> ReplayedNvml:
    path.write_bytes(msgspec.json.encode(recording))
    return ReplayedNvml(pynvml, msgspec.json.decode(path.read_bytes(), type=NvmlRecording).answers)


@pytest.mark.parametrize("states", [["gpus 2"], STATES], ids=["healthy", "faulty"])
def test_readers_see_the_same_from_a_recorded_driver(driver_says: Say, tmp_path: Path, states: list[str]) -> None:
    driver_says(states)
    replayed = send(record_nvml_answers(ignore), tmp_path / "answers.json")
    live = read_everything()
    driver_says(["gpus 0"])
    with substitute_nvml(replayed):
        assert read_everything() == live
    assert replayed.unknown == []
    assert [result.outcome for result in live["state"]] != []
    assert len(live["counters"][0]) == 2


def test_answers_are_raw_and_name_their_gpu(driver_says: Say) -> None:
    driver_says(STATES)
    answers = record_nvml_answers(ignore).answers
    found = {(each.call, each.gpu): each for each in answers}
    assert found["nvmlDeviceGetUUID", "GPU 1"].value == "GPU-fake-0001"
    assert found["nvmlDeviceGetPcieReplayCounter", "GPU 1"].code == pynvml.NVML_ERROR_NOT_SUPPORTED
    assert found["nvmlDeviceGetPcieReplayCounter", "GPU 0"].value == 7
    lost = [each.code for each in answers if each.call == "nvmlDeviceGetHandleByIndex" and each.arguments == (2,)]
    assert lost == [pynvml.NVML_ERROR_GPU_IS_LOST]


def test_a_query_that_was_not_recorded_is_unknown_to_the_driver(driver_says: Say, tmp_path: Path) -> None:
    driver_says(["gpus 2"])
    replayed = send(record_nvml_answers(ignore), tmp_path / "answers.json")
    with substitute_nvml(replayed):
        driver = NvmlDriver()
        assert driver.ask("DeviceGetSerial", driver.gpus()[0]) is None
    assert [each.split()[0] for each in replayed.unknown] == ["nvmlDeviceGetSerial"]


def test_a_process_of_its_own_asks_a_driver_that_may_hang(driver_says: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_says(["gpus 2"])
    asked = day_runs.record_driver(SystemClock())
    assert (asked.failures, len(asked.answers)) == ((), len(record_nvml_answers(ignore).answers))
    driver_says(["gpus 2", "hang 1"])
    monkeypatch.setattr(day_runs, "DRIVER_LIMIT_S", 1.0)
    hung = day_runs.record_driver(SystemClock())
    assert hung.answers == ()
    assert "GPU 1" in hung.failures[0]


def test_without_a_driver_the_reason_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", str(tmp_path / "none.so"))
    recording = record_nvml_answers(ignore)
    assert recording.answers == ()
    assert "cannot be loaded" in recording.failures[0]
    monkeypatch.delenv("HEALTHD_NVML_LIBRARY")
    silent = ReplayedNvml(pynvml, ())
    with substitute_nvml(silent), pytest.raises(NoDriverError) as raised:
        NvmlDriver()
    assert raised.value.outcome is Outcome.ERROR

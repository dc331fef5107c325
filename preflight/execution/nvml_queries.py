"""Asks the driver everything that preflight's readers ask, and records its raw answers. May hang with the driver."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from preflight.check_context import Context, Device, Note
from preflight.checks.gpu_state import check_gpu_state
from preflight.checks.nvlink_state import NvLinkReader
from preflight.execution.gpu_inventory import read_gpu_inventory
from preflight.host.counter_reader import HardwareCounterReader
from preflight.host.gpu_pcie_link import read_pcie_link
from preflight.host.load_sensors import open_gpu_sensors
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError, substitute_nvml
from preflight.host.nvml_recording import NvmlRecording, RecordingNvml
from preflight.host.software_inventory import read_installed_software
from vocabulary.hardware.machine_files import Machine


def record_nvml_answers(note: Note) -> NvmlRecording:
    """Run every reader once on a library that records. A reader that fails does not stop the others."""
    import pynvml  # noqa: PLC0415 - absent packages are a result, not a crash

    library = RecordingNvml(pynvml)
    failures: list[str] = []
    with substitute_nvml(library):
        try:
            NvmlDriver(note)
        except NoDriverError as error:
            return NvmlRecording(failures=(error.reason,))
        devices = list_recorded_devices(note)
        for reader in _list_readers(devices, note):
            try:
                reader()
            except Exception as error:  # noqa: BLE001 - whatever a broken driver causes is recorded
                failures.append(f"{type(error).__name__}: {error}")
    return NvmlRecording(answers=library.answers, failures=tuple(dict.fromkeys(failures)))


def list_recorded_devices(note: Note) -> tuple[Device, ...]:
    """The GPUs that the driver lists, as devices."""
    gpus = read_gpu_inventory(note).gpus
    return tuple(
        Device(name=f"cuda:{gpu.index}", torch_name="cuda:0", index=gpu.index, label="", uuid=gpu.uuid)
        for gpu in gpus
        if gpu.uuid
    )


def _list_readers(devices: Sequence[Device], note: Note) -> list[Callable[[], object]]:
    context = Context(device=None, devices=tuple(devices), level="gate", seconds=1.0, fault="", note=note)
    uuids = [device.uuid for device in devices]
    readers: list[Callable[[], object]] = [
        lambda: list(check_gpu_state(context)),
        lambda: read_installed_software(Machine(), note),
        lambda: HardwareCounterReader(note).read(uuids, None),
    ]
    for device in devices:
        readers.append(functools.partial(_read_sensors, device))
        readers.append(functools.partial(_read_links, device, devices, note))
    return readers


def _read_sensors(device: Device) -> None:
    driver = NvmlDriver()
    gpu = driver.gpu(device.uuid)
    read_pcie_link(Machine(), driver, gpu, driver.address(gpu))
    read, _ = open_gpu_sensors(driver, gpu)
    read(0.0, False)


def _read_links(device: Device, devices: Sequence[Device], note: Note) -> None:
    links = NvLinkReader(device, devices, note)
    links.read()
    for peer in devices:
        links.medium(peer)

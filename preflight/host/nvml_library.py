"""Loads the NVIDIA driver's library. Only test processes call this: a call into a faulty driver may never return."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from preflight.results import Outcome

LIBRARY_VARIABLE = "HEALTHD_NVML_LIBRARY"
PCI_DEVICES = Path("/sys/bus/pci/devices")
DEVICE_FILES = Path("/dev")
PROC = Path("/proc")
INITS = ("systemd", "init", "openrc-init", "runit")
CONTAINER_MARK = Path("run/systemd/container")  # a container with its own init
PASSED_THROUGH = ("vfio-pci", "pci-stub", "xen-pciback")
NVIDIA_VENDOR = "0x10de"
_MISMATCH = 18  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
GPU_CLASSES = ("0x0300", "0x0302")  # display controller, 3D controller
_substitutes: list[Any] = []  # the last one is used instead of pynvml


class NoDriverError(Exception):
    """The driver does not respond; contains the consequence for a test."""

    def __init__(self, outcome: Outcome, reason: str, *, misconfigured: bool = False) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.misconfigured = outcome, reason, misconfigured

    @property
    def mismatch(self) -> bool:
        """Whether it does not start because library and kernel module differ."""
        return getattr(self.__cause__, "value", None) == _MISMATCH


@contextmanager
def substitute_nvml(library: Any) -> Iterator[None]:
    """Give every reader `library` instead of pynvml: one that records the answers, or a recorded one."""
    _substitutes.append(library)
    try:
        yield
    finally:
        _substitutes.pop()


def load_nvml(note: Callable[[str], None]) -> Any:
    """Load and initialise the library. If a library exists, a GPU is expected, even if the bus shows none.

    Raises:
        NoDriverError: the library is missing, or does not start.
    """
    import pynvml as shipped  # noqa: PLC0415 - absent packages are a result, not a crash

    pynvml = _substitutes[-1] if _substitutes else shipped
    path = os.environ.get(LIBRARY_VARIABLE, "")
    note(f"loading {path or 'the NVML library'}")
    try:
        if path:
            pynvml.nvmlLib = ctypes.CDLL(path)  # pynvml uses a library that is already loaded
        note("nvmlInit")
        pynvml.nvmlInit()
    except OSError as error:
        reason = f"{LIBRARY_VARIABLE} names a library that cannot be loaded: {error}"
        raise NoDriverError(Outcome.NOT_RUN, reason, misconfigured=True) from error
    except pynvml.NVMLError_LibraryNotFound as error:
        raise build_no_library_error(count_gpus()) from error
    except pynvml.NVMLError as error:
        raise NoDriverError(Outcome.ERROR, f"the driver does not start: {error}") from error
    return pynvml


def list_unsupported_codes(library: Any) -> frozenset[int]:
    """What drivers answer to a call, a memory or a field number that they or the GPU do not know; releases differ."""
    return frozenset(
        (
            library.NVML_ERROR_NOT_SUPPORTED,
            library.NVML_ERROR_INVALID_ARGUMENT,
            library.NVML_ERROR_FUNCTION_NOT_FOUND,
            library.NVML_ERROR_NOT_FOUND,
            library.NVML_ERROR_DEPRECATED,
            library.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        )
    )


def read_field_value(library: Any, value: Any) -> int | float:
    """The number in an answered field value; its type says which member holds it."""
    members = {
        library.NVML_VALUE_TYPE_DOUBLE: "dVal",
        library.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        library.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        library.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        library.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        library.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    }
    number: int | float = getattr(value.value, members.get(value.valueType, "ullVal"))
    return number


def build_no_library_error(gpus: int) -> NoDriverError:
    """The consequence of a missing library on a machine with this many GPUs."""
    if gpus:
        reason = f"{gpus} GPUs on the PCI bus, but no NVML library; check that a driver is installed"
        return NoDriverError(Outcome.ERROR, reason)
    return NoDriverError(Outcome.NOT_APPLICABLE, "no GPU on the PCI bus and no NVML library")


def count_gpus() -> int:
    """The number of GPUs of this machine, independent of the driver: a container may hide the bus, or the device files."""
    return max(count_gpus_on_bus(), count_device_files())


def count_own_gpus(devices: Path = PCI_DEVICES, directory: Path = DEVICE_FILES, proc: Path = PROC) -> int:
    """How many GPUs the driver should show: in a container or job possibly fewer than the machine has.

    A container sees the bus of the whole machine, so only its device files count. In a job a device file may exist that cannot be
    opened. A GPU passed through to a virtual machine does not belong to the driver.
    """
    files = _list_device_files(directory)
    open_to_us = sum(os.access(path, os.R_OK | os.W_OK) for path in files)
    if not runs_outside_container(proc):
        return open_to_us
    return max(open_to_us, count_gpus_on_bus(devices, handed_on=False) - (len(files) - open_to_us))


def runs_outside_container(proc: Path = PROC) -> bool:
    """Whether process 1 is an init with the same files as this process, so that this is not a container."""
    try:
        if (proc / "1" / "comm").read_text().strip() not in INITS or (proc.parent / CONTAINER_MARK).exists():
            return False
    except OSError:
        return False
    try:
        return (proc / "1" / "ns" / "mnt").readlink() == (proc / "self" / "ns" / "mnt").readlink()
    except OSError:
        return True  # only root may know


def count_gpus_on_bus(devices: Path = PCI_DEVICES, *, handed_on: bool = True) -> int:
    """The number of NVIDIA GPUs on the PCI bus, with or without those for virtual machines."""
    return sum(
        _read_text(device / "vendor") == NVIDIA_VENDOR
        and _read_text(device / "class").startswith(GPU_CLASSES)
        and (handed_on or (device / "driver").resolve().name not in PASSED_THROUGH)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def count_device_files(directory: Path = DEVICE_FILES) -> int:
    """The number of GPUs with a device file in this machine, or container."""
    return len(_list_device_files(directory))


def _list_device_files(directory: Path) -> list[Path]:
    return [path for path in directory.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

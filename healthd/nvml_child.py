"""The NVML child: the only process that ever calls into the driver, so that only it can hang there.

    python -m healthd.nvml_child SLATE_FD LIBRARY INTERVAL_S        (LIBRARY "" lets pynvml find it)

Writes one JSON line for the inventory, then one for each sweep. Before every call it notes GPU and call on the slate,
a shared page that costs no system call: when a sweep never ends, the parent reads there where it hangs. A byte on
standard input asks for a full sweep now; its end means the parent is gone.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml

from healthd.samples.nvml import GpuReading, Inventory, NvmlUnavailable, Sweep
from healthd.slate import Slate
from vocabulary.identity import canonical_pci
from vocabulary.wire import Gpu

LOOK_AFTER_S = (0.0, 0.05, 0.2, 1.0)  # the driver's flag may follow its kernel line
MEMORY_EVERY_SWEEPS = 10  # ECC and remapping cost a hundred times what a temperature does
_PR_SET_PDEATHSIG = 1


def _throttle_mask(handle: Any) -> int:
    try:
        mask = pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except pynvml.NVMLError_FunctionNotFound:  # drivers before 535 know it by its older name
        mask = pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return int(mask)


def _recovery_action(handle: Any) -> int:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)


def _ecc(kind: int) -> Callable[[Any], int]:
    return lambda handle: int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_VOLATILE_ECC))


# What to read: name on the slate and in messages → call. The first table costs microseconds, the second far more.
CHEAP: dict[str, Callable[[Any], Any]] = {
    "temperature_c": lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    "sm_clock_mhz": lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "power_mw": pynvml.nvmlDeviceGetPowerUsage,
    "throttle_mask": _throttle_mask,
}
DEAR: dict[str, Callable[[Any], Any]] = {
    "ecc_corrected": _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected": _ecc(pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "remapped_rows": pynvml.nvmlDeviceGetRemappedRows,
    "recovery_action": _recovery_action,
}


class Lost(Exception):
    """The driver no longer reaches the GPU."""


class Device:
    """One GPU, by index: its handle is fetched again until the driver grants one."""

    def __init__(self, index: int, slate: Slate) -> None:
        self.index = index
        self._slate = slate
        self._handle: Any = None
        self._errors: dict[str, str] = {}

    def identify(self) -> Gpu | None:
        """Its names; None if it will not tell them."""
        try:
            handle = self._handle_now()
            self._slate.write(self.index, "identity")
            serial = self._ask("serial", pynvml.nvmlDeviceGetSerial)
            return Gpu(
                index=self.index,
                uuid=pynvml.nvmlDeviceGetUUID(handle),
                pci=canonical_pci(pynvml.nvmlDeviceGetPciInfo(handle).busId),
                name=pynvml.nvmlDeviceGetName(handle),
                serial=serial or "",
            )
        except (pynvml.NVMLError, Lost):
            return None

    def read(self, *, memory: bool) -> GpuReading:
        """One reading; what fails is None and named in `errors`, and spares the rest."""
        self._errors = {}
        try:
            self._handle_now()
            values = {name: self._ask(name, call) for name, call in CHEAP.items()}
            if memory:
                values |= self._memory()
        except Lost:
            return GpuReading(index=self.index, lost=True)
        except pynvml.NVMLError as error:
            return GpuReading(index=self.index, errors={"handle": str(error)})
        return GpuReading(index=self.index, errors=self._errors, **values)

    def _memory(self) -> dict[str, Any]:
        values = {name: self._ask(name, call) for name, call in DEAR.items()}
        corrected, uncorrected, pending, failed = values.pop("remapped_rows") or (None, None, None, None)
        return values | {
            "rows_remapped_corrected": corrected,
            "rows_remapped_uncorrected": uncorrected,
            "remap_pending": None if pending is None else bool(pending),
            "remap_failed": None if failed is None else bool(failed),
        }

    def _handle_now(self) -> Any:
        if self._handle is None:
            self._slate.write(self.index, "handle")
            try:
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            except pynvml.NVMLError_GpuIsLost as error:
                raise Lost from error
        return self._handle

    def _ask(self, name: str, call: Callable[[Any], Any]) -> Any:
        self._slate.write(self.index, name)
        try:
            return call(self._handle)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return None  # this GPU or driver never has it: absence is no error
        except pynvml.NVMLError_GpuIsLost as error:
            raise Lost from error
        except pynvml.NVMLError as error:
            self._errors[name] = str(error)
            return None


def main(arguments: list[str]) -> int:
    """Sweep until the parent goes. Returns 3 if NVML cannot be used."""
    slate, library, interval_s = Slate(int(arguments[0])), arguments[1], float(arguments[2])
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung call would never see the end of its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the parent to act upon
    if os.getppid() != parent:
        return 0
    try:
        if library:  # pynvml loads by bare name; a library that is already there it takes as it is
            pynvml.nvmlLib = ctypes.CDLL(library)
        slate.write(None, "nvmlInit")
        pynvml.nvmlInit()
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        devices = [Device(index, slate) for index in range(pynvml.nvmlDeviceGetCount())]
    except (pynvml.NVMLError, OSError) as error:
        _send(NvmlUnavailable(time.time(), f"{error}{'' if not library else f' ({library})'}"))
        return 3
    known = tuple(gpu for gpu in (device.identify() for device in devices) if gpu is not None)
    _send(Inventory(driver, len(devices), known))
    _sweep_for_ever(devices, interval_s, slate)
    return 0


def _sweep_for_ever(devices: list[Device], interval_s: float, slate: Slate) -> None:
    due, until_memory = time.monotonic(), 0
    looks: list[float] = []  # when to read everything, because the kernel log has told of something
    while True:
        started = time.monotonic()
        everything = until_memory == 0 or any(at <= started for at in looks)
        looks = [at for at in looks if at > started]
        readings = tuple(device.read(memory=everything) for device in devices)
        _send(Sweep(time.time(), time.monotonic() - started, readings))
        slate.write(None, "")
        if started >= due:
            until_memory = (until_memory or MEMORY_EVERY_SWEEPS) - 1
            due = max(due + interval_s, time.monotonic())
        wait_s = max(0.0, min([due, *looks]) - time.monotonic())
        if select.select([0], [], [], wait_s)[0]:
            if not os.read(0, 64):
                return
            looks = [time.monotonic() + after_s for after_s in LOOK_AFTER_S]


def _send(message: msgspec.Struct) -> None:
    line = memoryview(msgspec.json.encode(message) + b"\n")
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

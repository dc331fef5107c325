"""One GPU: its handle, its names, and one reading of it. A call that fails is named and does not affect the others."""

from __future__ import annotations

from typing import Any

import pynvml

from healthd.nvml import reading_tiers
from healthd.nvml.gpu_constants import list_constant_readings
from healthd.nvml.gpu_processes import read_mig_state
from healthd.nvml.gpu_reading import ABSENT, NvmlReading
from healthd.nvml.pci_address import format_pci_address
from healthd.supervision.child_call_page import ChildCallPage

Message = dict[str, Any]


class GpuLost(Exception):
    """The driver no longer reaches the GPU."""


class GpuDevice:
    """One GPU, by index. Fetches the handle again until the driver grants one."""

    def __init__(self, index: int, call_page: ChildCallPage) -> None:
        self.index = index
        self._call_page = call_page
        self._handle: Any = None
        self._absent: set[str] = set()
        self._sweep, self._often = reading_tiers.list_sweep_readings(), reading_tiers.list_frequent_readings()
        self._faults, self._rarely = reading_tiers.list_rare_fault_readings(), reading_tiers.list_rare_readings()

    def names(self) -> Message | None:
        """Return the fields of a `Gpu`; None if it does not report them."""
        try:
            handle = self.handle()
            self._call_page.write(self.index, "identity")
            names = {
                "index": self.index,
                "uuid": pynvml.nvmlDeviceGetUUID(handle),
                "pci": format_pci_address(pynvml.nvmlDeviceGetPciInfo(handle)),
                "name": pynvml.nvmlDeviceGetName(handle),
            }
            return names | self._read([NvmlReading("serial", pynvml.nvmlDeviceGetSerial)])[0]
        except (pynvml.NVMLError, ValueError, GpuLost):
            return None

    def constants(self) -> Message:
        """Return the known fields of `GpuConstants`."""
        try:
            self.handle()
            return {"index": self.index, **self._read(list_constant_readings())[0]}
        except (pynvml.NVMLError, GpuLost):
            return {"index": self.index}

    def identity(self) -> tuple[str, tuple[str, ...]] | None:
        """Return the UUIDs of the GPU and its MIG instances, which must stay the same; None if unknown."""
        try:
            handle = self.handle()
            self._call_page.write(self.index, "identity")
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            parts, errors = self._read([NvmlReading("mig", read_mig_state)])
        except (pynvml.NVMLError, ValueError, GpuLost):
            return None
        return None if errors else (uuid, tuple(parts.get("mig_devices", ())))

    def read(self, *, often: bool, faults: bool, rarely: bool) -> Message:
        """Return the cheap readings and those of the requested tiers; `rarely` includes `faults`."""
        readings = list(self._sweep)
        readings += self._often if often else []
        readings += self._faults if faults or rarely else []
        readings += self._rarely if rarely else []
        try:
            self.handle()
            values, errors = self._read(readings)
        except GpuLost:
            return {"index": self.index, "lost": True}
        except pynvml.NVMLError as error:
            return {"index": self.index, "errors": {"handle": str(error)}}
        return {"index": self.index, **values, **({"errors": errors} if errors else {})}

    def handle(self) -> Any:
        """Return the driver's handle.

        Raises:
            GpuLost: the driver does not reach the GPU.
            NVMLError: it does not grant a handle.
        """
        if self._handle is None:
            self._call_page.write(self.index, "handle")
            try:
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            except pynvml.NVMLError_GpuIsLost as error:
                raise GpuLost from error
        return self._handle

    def _read(self, readings: list[NvmlReading]) -> tuple[Message, dict[str, str]]:
        values: Message = {}
        errors: dict[str, str] = {}
        for name, ask in readings:
            if name in self._absent:
                continue
            self._call_page.write(self.index, name)
            try:
                answer = ask(self._handle)
            except ABSENT:
                self._absent.add(name)
            except pynvml.NVMLError_GpuIsLost as error:
                self._forget()
                raise GpuLost from error
            except (pynvml.NVMLError, ValueError) as error:  # a string that cannot be decoded is a ValueError
                errors[name] = str(error)
            else:
                if isinstance(answer, dict):
                    errors |= answer.pop("errors", {})
                    values |= answer
                elif answer is not None:
                    values[name] = answer
        return values, errors

    def _forget(self) -> None:
        """Forget what is unsupported: a failing GPU may report that wrongly and have it when it comes back."""
        self._handle = None
        self._absent.clear()

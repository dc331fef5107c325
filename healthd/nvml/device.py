"""One GPU: its handle, its names, and one reading of it, in which what fails is named and spares the rest."""

from __future__ import annotations

from typing import Any

import pynvml

from healthd.nvml import tiers
from healthd.nvml.constants import constants
from healthd.nvml.holders import mig
from healthd.nvml.pci import address
from healthd.nvml.reading import ABSENT, Reading
from healthd.slate import Slate

Message = dict[str, Any]


class Lost(Exception):
    """The driver no longer reaches the GPU."""


class Device:
    """One GPU, by index: its handle is fetched again until the driver grants one."""

    def __init__(self, index: int, slate: Slate) -> None:
        self.index = index
        self._slate = slate
        self._handle: Any = None
        self._absent: set[str] = set()
        self._sweep, self._often = tiers.every_sweep(), tiers.often()
        self._grave, self._rarely = tiers.rarely_grave(), tiers.rarely()

    def names(self) -> Message | None:
        """The fields of a `Gpu`; None if it will not tell them."""
        try:
            handle = self.handle()
            self._slate.write(self.index, "identity")
            names = {
                "index": self.index,
                "uuid": pynvml.nvmlDeviceGetUUID(handle),
                "pci": address(pynvml.nvmlDeviceGetPciInfo(handle)),
                "name": pynvml.nvmlDeviceGetName(handle),
            }
            return names | self._read([Reading("serial", pynvml.nvmlDeviceGetSerial)])[0]
        except (pynvml.NVMLError, ValueError, Lost):
            return None

    def constants(self) -> Message:
        """The fields of `GpuConstants` that are known."""
        try:
            self.handle()
            return {"index": self.index, **self._read(constants())[0]}
        except (pynvml.NVMLError, Lost):
            return {"index": self.index}

    def identity(self) -> tuple[str, tuple[str, ...]] | None:
        """What must stay the same for the inventory to hold: its UUID, and those of its parts; None if unknown."""
        try:
            handle = self.handle()
            self._slate.write(self.index, "identity")
            uuid = pynvml.nvmlDeviceGetUUID(handle)
            parts, errors = self._read([Reading("mig", mig)])
        except (pynvml.NVMLError, ValueError, Lost):
            return None
        return None if errors else (uuid, tuple(parts.get("mig_devices", ())))

    def read(self, *, often: bool, grave: bool, rarely: bool) -> Message:
        """One reading of what is cheap, and of the tiers asked for; `rarely` includes `grave`."""
        readings = list(self._sweep)
        readings += self._often if often else []
        readings += self._grave if grave or rarely else []
        readings += self._rarely if rarely else []
        try:
            self.handle()
            values, errors = self._read(readings)
        except Lost:
            return {"index": self.index, "lost": True}
        except pynvml.NVMLError as error:
            return {"index": self.index, "errors": {"handle": str(error)}}
        return {"index": self.index, **values, **({"errors": errors} if errors else {})}

    def handle(self) -> Any:
        """The driver's handle.

        Raises:
            Lost: the driver does not reach the GPU.
            NVMLError: it does not grant one.
        """
        if self._handle is None:
            self._slate.write(self.index, "handle")
            try:
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(self.index)
            except pynvml.NVMLError_GpuIsLost as error:
                raise Lost from error
        return self._handle

    def _read(self, readings: list[Reading]) -> tuple[Message, dict[str, str]]:
        values: Message = {}
        errors: dict[str, str] = {}
        for name, ask in readings:
            if name in self._absent:
                continue
            self._slate.write(self.index, name)
            try:
                answer = ask(self._handle)
            except ABSENT:
                self._absent.add(name)
            except pynvml.NVMLError_GpuIsLost as error:
                self._forget()
                raise Lost from error
            except (pynvml.NVMLError, ValueError) as error:  # a text that is none is a ValueError
                errors[name] = str(error)
            else:
                if isinstance(answer, dict):
                    errors |= answer.pop("errors", {})
                    values |= answer
                elif answer is not None:
                    values[name] = answer
        return values, errors

    def _forget(self) -> None:
        """What a dying GPU called unsupported may be there when it comes back."""
        self._handle = None
        self._absent.clear()

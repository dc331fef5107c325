"""Reads /sys/devices/system/edac/mc: four small files a module. Absent without ECC memory or the chipset's driver."""

from __future__ import annotations

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.edac import Dimm, EdacSample
from vocabulary.hardware.machine_files import read_memory_modules


def read_edac(machine: MachineAccess, options: Options) -> EdacSample:  # noqa: ARG001 - every collector takes options
    """Return every module, and errors without a module.

    Raises:
        SourceAbsent: no memory controller is watched.
    """
    modules = read_memory_modules(machine)
    if not modules:
        raise SourceAbsent("no memory controller is watched: no ECC memory, or no EDAC driver for this chipset")
    return EdacSample(tuple(Dimm(*module) for module in modules))

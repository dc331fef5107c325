"""Reads /sys/devices/system/edac/mc: four small files a module. Absent without ECC memory or the chipset's driver."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric
from vocabulary.hardware.machine_files import read_memory_modules


class Dimm(NamedTuple):
    """One memory module, or errors without a module (`dimm` is then empty). Counts since boot."""

    controller: str
    dimm: str
    label: str  # as printed on the board, if the firmware reports it
    corrected: int | None
    uncorrected: int | None


class EdacSample(NamedTuple):
    """All modules of all controllers."""

    dimms: tuple[Dimm, ...]


METRICS = (
    Family(
        rows="dimms",
        labels=("controller", "dimm", "label"),
        metrics=(
            Metric(
                "healthd_host_memory_errors_total",
                "Errors of the host's memory since boot.",
                "corrected",
                "counter",
                labels=(("kind", "corrected"),),
            ),
            Metric(
                "healthd_host_memory_errors_total",
                "",
                "uncorrected",
                "counter",
                labels=(("kind", "uncorrected"),),
            ),
        ),
    ),
)


def read_edac(machine: MachineAccess, options: Options) -> EdacSample:  # noqa: ARG001 - every collector takes options
    """Return every module, and errors without a module.

    Raises:
        SourceAbsent: no memory controller is watched.
    """
    modules = read_memory_modules(machine)
    if not modules:
        raise SourceAbsent("no memory controller is watched: no ECC memory, or no EDAC driver for this chipset")
    return EdacSample(tuple(Dimm(*module) for module in modules))

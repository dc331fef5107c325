"""Reads /sys/devices/system/edac/mc: four small files a module. Absent without ECC memory or the chipset's driver."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

_WHERE = "/sys/devices/system/edac/mc"


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
    """Return every module, and errors without a module (kernel Documentation/driver-api/edac.rst).

    Raises:
        SourceAbsent: no memory controller is watched.
    """
    controllers = [name for name in machine.names(_WHERE) if name.startswith("mc") and name[2:].isdecimal()]
    if not controllers:
        raise SourceAbsent(f"no controller below {_WHERE}: no ECC memory, or no EDAC driver for this chipset")
    return EdacSample(tuple(dimm for name in controllers for dimm in _read_dimms(machine, name)))


def _read_dimms(machine: MachineAccess, controller: str) -> list[Dimm]:
    where = f"{_WHERE}/{controller}"
    found = [
        Dimm(
            controller=controller,
            dimm=name,
            label=machine.text(f"{where}/{name}/dimm_label") or "",
            corrected=machine.number(f"{where}/{name}/dimm_ce_count"),
            uncorrected=machine.number(f"{where}/{name}/dimm_ue_count"),
        )
        for name in machine.names(where)
        if name.startswith(("dimm", "rank")) and name[4:].isdecimal()
    ]
    suffix = "_noinfo" if found else ""  # without modules the controller's own sums are all there is
    rest = Dimm(
        controller=controller,
        dimm="",
        label="",
        corrected=machine.number(f"{where}/ce{suffix}_count"),
        uncorrected=machine.number(f"{where}/ue{suffix}_count"),
    )
    return [*found, rest]

"""Reads /sys/bus/pci/devices: 7 small files a hop, 5 ms for eight GPUs and their path. Absent without such devices."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric
from vocabulary.hardware.machine_files import parse_aer_total, parse_leading_number

_WHERE = "/sys/bus/pci/devices"
_NVIDIA, _MELLANOX = 0x10DE, 0x15B3
# (vendor or None for any, class code's upper 16 bits) → kind
_KINDS = {
    (_NVIDIA, 0x0300): "gpu",
    (_NVIDIA, 0x0302): "gpu",
    (_NVIDIA, 0x0680): "nvswitch",
    (_MELLANOX, 0x0200): "nic",
    (_MELLANOX, 0x0207): "nic",
    (None, 0x0108): "nvme",
}
DEVICES_MAX = 256
_ERRORS = (("correctable", "COR"), ("nonfatal", "NONFATAL"), ("fatal", "FATAL"))


class PcieHop(NamedTuple):
    """One device on the way from a root port down to an end point. Errors count since the device was found."""

    pci: str
    kind: str  # gpu, nvswitch, nic, nvme, or bridge
    width: int | None
    width_max: int | None
    speed_gts: float | None
    speed_max_gts: float | None
    corrected: int | None
    nonfatal: int | None
    fatal: int | None
    driver: str = ""  # of a GPU: the bound driver; empty if none


class PcieSample(NamedTuple):
    """Every hop once, and for each end point the addresses from its root port down to itself."""

    hops: tuple[PcieHop, ...]
    paths: tuple[tuple[str, ...], ...]


METRICS = (
    Family(
        rows="hops",
        labels=("pci", "kind"),
        metrics=(
            Metric("healthd_pcie_link_width_lanes", "Lanes in use.", "width"),
            Metric("healthd_pcie_link_width_max_lanes", "Lanes it supports.", "width_max"),
            Metric("healthd_pcie_link_transfers_per_second", "Transfer rate of the link.", "speed_gts", factor=1e9),
            Metric(
                "healthd_pcie_errors_total",
                "Errors counted by advanced error reporting.",
                "corrected",
                "counter",
                labels=(("severity", "corrected"),),
            ),
            Metric("healthd_pcie_errors_total", "", "nonfatal", "counter", labels=(("severity", "nonfatal"),)),
            Metric("healthd_pcie_errors_total", "", "fatal", "counter", labels=(("severity", "fatal"),)),
        ),
    ),
)


def read_pcie(machine: MachineAccess, options: Options) -> PcieSample:  # noqa: ARG001 - every collector takes options
    """Return GPUs, NVSwitches, network adapters, NVMe disks, and every bridge above them.

    Raises:
        SourceAbsent: there is none of them.
    """
    paths: list[tuple[str, ...]] = []
    kinds: dict[str, str] = {}
    for address in machine.names(_WHERE)[: 16 * DEVICES_MAX]:
        kind = _classify_device(machine, address)
        path = _read_bus_path(machine, address) if kind else ()
        if path and len(paths) < DEVICES_MAX:
            paths.append(path)
            kinds[address] = kind
    if not paths:
        raise SourceAbsent(f"no GPU, NVSwitch, network adapter or NVMe disk below {_WHERE}")
    hops = {address: _read_hop(machine, address, kinds.get(address, "bridge")) for path in paths for address in path}
    return PcieSample(tuple(hops.values()), tuple(paths))


def _classify_device(machine: MachineAccess, address: str) -> str:
    vendor, code = machine.number(f"{_WHERE}/{address}/vendor"), machine.number(f"{_WHERE}/{address}/class")
    if vendor is None or code is None:
        return ""
    kind = _KINDS.get((vendor, code >> 8)) or _KINDS.get((None, code >> 8)) or ""
    if kind == "gpu" and machine.exists(f"{_WHERE}/{address}/physfn"):
        return ""  # a virtual function: a slice of a GPU for a virtual machine
    return kind


def _read_driver(machine: MachineAccess, address: str) -> str:
    return machine.target(f"{_WHERE}/{address}/driver").rpartition("/")[2]


def _read_bus_path(machine: MachineAccess, address: str) -> tuple[str, ...]:
    """Split ``/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0`` into both addresses."""
    real = machine.target(f"{_WHERE}/{address}")
    return tuple(part for part in real.split("/") if part.count(":") == 2)


def _read_hop(machine: MachineAccess, address: str, kind: str) -> PcieHop:
    where = f"{_WHERE}/{address}"
    counts = [parse_aer_total(machine.text(f"{where}/aer_dev_{name}") or "", word) for name, word in _ERRORS]
    return PcieHop(
        pci=address,
        kind=kind,
        width=machine.number(f"{where}/current_link_width") or None,  # 0: there is no link
        width_max=machine.number(f"{where}/max_link_width") or None,
        speed_gts=parse_leading_number(machine.text(f"{where}/current_link_speed") or ""),
        speed_max_gts=parse_leading_number(machine.text(f"{where}/max_link_speed") or ""),
        corrected=counts[0],
        nonfatal=counts[1],
        fatal=counts[2],
        driver=_read_driver(machine, address) if kind == "gpu" else "",
    )

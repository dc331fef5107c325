"""The PCIe paths of the relevant devices: each hop's link, and its errors."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


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

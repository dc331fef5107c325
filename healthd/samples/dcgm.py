"""DCGM's data, where it runs: incidents of its health watches, and utilisation of the GPUs' units."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class DcgmIncident(NamedTuple):
    """One incident, as DCGM judges it."""

    entity: str  # "GPU 3", "NvSwitch 0"
    system: str  # "Memory system", "NVLINK system", …
    health: str  # Warning or Failure
    text: str


class DcgmProfile(NamedTuple):
    """One GPU over the last sampling interval. Ratios of 0 to 1; None where DCGM has none."""

    gpu: int
    sm_active: float | None
    tensor_active: float | None
    dram_active: float | None
    pcie_tx_bytes_s: float | None
    pcie_rx_bytes_s: float | None


class DcgmSample(NamedTuple):
    """`watched`: DCGM's health watches are on, so that no incident means healthy."""

    via: str  # "dcgmi", or the exporter's address
    watched: bool
    incidents: tuple[DcgmIncident, ...]
    profiles: tuple[DcgmProfile, ...]


METRICS = (
    Family(
        rows="",
        labels=("via",),
        metrics=(Metric("healthd_dcgm_watched", "1 if DCGM's health watches are on.", "watched"),),
    ),
    Family(
        rows="profiles",
        labels=("gpu",),
        metrics=(
            Metric("healthd_dcgm_sm_active_ratio", "Share of multiprocessors with a warp.", "sm_active"),
            Metric("healthd_dcgm_tensor_active_ratio", "Share of tensor cycles in use.", "tensor_active"),
            Metric("healthd_dcgm_dram_active_ratio", "Share of memory cycles in use.", "dram_active"),
            Metric("healthd_dcgm_pcie_transmit_bytes_per_second", "Data sent over PCIe.", "pcie_tx_bytes_s"),
            Metric("healthd_dcgm_pcie_receive_bytes_per_second", "Data received over PCIe.", "pcie_rx_bytes_s"),
        ),
    ),
)

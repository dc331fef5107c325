"""NVMe disks: whether their controllers work, and their self-reported health."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class NvmeHealth(NamedTuple):
    """The controller's own log (NVM Express Base Specification, log page 02h). Counts cover its whole life."""

    critical_bits: int  # 1 spare low, 2 temperature, 4 unreliable, 8 read-only, 16 its backup power failed
    temperature_c: int
    spare_percent: int
    spare_percent_min: int
    used_percent: int  # of its rated life; may pass 100
    media_errors: int
    unsafe_shutdowns: int


class NvmeDisk(NamedTuple):
    """One controller. `state` is the kernel's: live, resetting, dead and others."""

    name: str
    pci: str
    model: str
    serial: str
    firmware: str
    state: str
    critical_bits: int | None = None
    temperature_c: int | None = None
    spare_percent: int | None = None
    spare_percent_min: int | None = None
    used_percent: int | None = None
    media_errors: int | None = None
    unsafe_shutdowns: int | None = None


class NvmeSample(NamedTuple):
    """All disks."""

    disks: tuple[NvmeDisk, ...]


METRICS = (
    Family(
        rows="disks",
        labels=("name",),
        metrics=(
            Metric("healthd_host_nvme_info", "The disk's identity.", "model", "info"),
            Metric("healthd_host_nvme_info", "", "serial", "info"),
            Metric("healthd_host_nvme_info", "", "firmware", "info"),
            Metric("healthd_host_nvme_info", "", "pci", "info"),
            Metric("healthd_host_nvme_critical_bits", "The disk's warnings, as bits; 0 is none.", "critical_bits"),
            Metric("healthd_host_nvme_temperature_celsius", "Temperature.", "temperature_c"),
            Metric("healthd_host_nvme_spare_ratio", "Remaining spare blocks.", "spare_percent", factor=0.01),
            Metric("healthd_host_nvme_used_ratio", "Share of its rated life.", "used_percent", factor=0.01),
            Metric(
                "healthd_host_nvme_media_errors_total",
                "Media errors: data that could not be read.",
                "media_errors",
                "counter",
            ),
        ),
    ),
)

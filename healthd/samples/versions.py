"""What is installed and running, as text: a fleet's nodes should agree."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class VersionsSample(NamedTuple):
    """Versions; empty where this machine does not report them."""

    kernel: str
    os: str
    board: str
    bios: str
    microcode: str  # several, if the cores differ
    nvidia: str  # the loaded kernel module
    nvidia_peermem: str  # "loaded", or empty
    mlx5: str
    cmdline: str  # the kernel's options for PCIe and memory
    image: str = ""  # name and version of the system image


METRICS = (
    Family(
        rows="",
        labels=(),
        metrics=tuple(
            Metric("healthd_host_version_info", "What is installed and running.", field, "info")
            for field in ("kernel", "os", "board", "bios", "microcode", "nvidia", "nvidia_peermem", "mlx5", "cmdline")
        ),
    ),
)

"""What is installed and running, in words: a fleet's nodes should say the same."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class VersionsSample(NamedTuple):
    """Empty where this machine does not tell."""

    kernel: str
    os: str
    board: str
    bios: str
    microcode: str  # several, if the cores differ
    nvidia: str  # the loaded kernel module
    nvidia_peermem: str  # "loaded", or empty
    mlx5: str
    cmdline: str  # the kernel's, where it concerns PCIe and memory
    image: str = ""  # name and version of the image the system was made of


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

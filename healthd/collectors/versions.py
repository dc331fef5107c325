"""Reads a dozen small files of /proc and /sys, 1 ms (the list of cores is the long one). There is always a kernel."""

from __future__ import annotations

from healthd.machine import Absent, Machine, Options
from healthd.samples.versions import VersionsSample

_DMI = "/sys/class/dmi/id"
# Words of the kernel's command line that change how GPUs and NICs perform or fail.
_TELLING = (
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "pci",
    "pcie_aspm",
    "numa_balancing",
    "transparent_hugepage",
    "mitigations",
)


def read(machine: Machine, options: Options) -> VersionsSample:  # noqa: ARG001 - every collector takes options
    """All of them.

    Raises:
        Absent: there is no /proc.
    """
    kernel = machine.text("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise Absent("no /proc/sys/kernel/osrelease")
    board = (machine.text(f"{_DMI}/{key}") or "" for key in ("sys_vendor", "product_name"))
    bios = (machine.text(f"{_DMI}/{key}") or "" for key in ("bios_version", "bios_date"))
    return VersionsSample(
        kernel=kernel,
        os=pretty_name(machine.text("/etc/os-release") or ""),
        board=" ".join(board).strip(),
        bios=" ".join(bios).strip(),
        microcode=microcodes(machine.text("/proc/cpuinfo") or ""),
        nvidia=machine.text("/sys/module/nvidia/version") or "",
        nvidia_peermem="loaded" if machine.exists("/sys/module/nvidia_peermem") else "",
        mlx5=machine.text("/sys/module/mlx5_core/version") or "",
        cmdline=telling(machine.text("/proc/cmdline") or ""),
    )


def pretty_name(text: str) -> str:
    """Of os-release(5)."""
    lines = (line.partition("=") for line in text.splitlines())
    return next((value.strip("\"'") for key, _, value in lines if key == "PRETTY_NAME"), "")


def microcodes(cpuinfo: str) -> str:
    """Each revision once; one is as it should be."""
    lines = (line.partition(":") for line in cpuinfo.splitlines() if line.startswith("microcode"))
    return " ".join(sorted({value.strip() for _, _, value in lines}))


def telling(cmdline: str) -> str:
    """The words that matter here, in order of the alphabet."""
    return " ".join(sorted(word for word in cmdline.split() if word.partition("=")[0] in _TELLING))

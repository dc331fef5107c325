"""Reads a dozen small files of /proc and /sys, 1 ms (the list of cores is the long one). Always present."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric
from vocabulary.hardware.kernel_command_line import select_relevant_options

_DMI = "/sys/class/dmi/id"


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


def read_versions(machine: MachineAccess, options: Options) -> VersionsSample:  # noqa: ARG001 - every collector takes options
    """Return all of them.

    Raises:
        SourceAbsent: there is no /proc.
    """
    kernel = machine.text("/proc/sys/kernel/osrelease")
    if kernel is None:
        raise SourceAbsent("no /proc/sys/kernel/osrelease")
    board = (machine.text(f"{_DMI}/{key}") or "" for key in ("sys_vendor", "product_name"))
    bios = (machine.text(f"{_DMI}/{key}") or "" for key in ("bios_version", "bios_date"))
    release = parse_os_release(machine.text("/etc/os-release") or "")
    return VersionsSample(
        kernel=kernel,
        os=release.get("PRETTY_NAME", ""),
        board=" ".join(board).strip(),
        bios=" ".join(bios).strip(),
        microcode=parse_microcode_revisions(machine.text("/proc/cpuinfo") or ""),
        nvidia=machine.text("/sys/module/nvidia/version") or "",
        nvidia_peermem="loaded" if machine.exists("/sys/module/nvidia_peermem") else "",
        mlx5=machine.text("/sys/module/mlx5_core/version") or "",
        cmdline=select_relevant_options(machine.text("/proc/cmdline") or ""),
        image=" ".join(release[key] for key in ("IMAGE_ID", "IMAGE_VERSION") if release.get(key)),
    )


def parse_os_release(text: str) -> dict[str, str]:
    """Parse os-release(5) by its keys."""
    lines = (line.partition("=") for line in text.splitlines())
    return {key: value.strip("\"'") for key, _, value in lines}


def parse_microcode_revisions(cpuinfo: str) -> str:
    """Return each revision once; a healthy node has one."""
    lines = (line.partition(":") for line in cpuinfo.splitlines() if line.startswith("microcode"))
    return " ".join(sorted({value.strip() for _, _, value in lines}))

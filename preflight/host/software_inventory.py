"""Installed software and settings of this node: kernel, driver, libraries, and the modes of each GPU."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from preflight.host.installed_software import InstalledGpu, InstalledSoftware
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from vocabulary.hardware.kernel_command_line import select_relevant_options
from vocabulary.hardware.machine_files import Machine

_PCI = "/sys/bus/pci/devices"
_NVIDIA = 0x10DE
_GPU_CLASSES, _SWITCH_CLASS = (0x0300, 0x0302), 0x0680
_FABRIC_MANAGER = "nv-fabricmanage"  # the kernel truncates program names to fifteen characters
_INITS = ("systemd", "init")
_NCCL_PACKAGES = ("nvidia-nccl-cu12", "nvidia-nccl-cu13", "nvidia-nccl-cu11")
_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")

Note = Callable[[str], None]


def read_installed_software(machine: Machine, note: Note) -> InstalledSoftware:
    """Read everything. Never fails: unreadable values are missing."""
    facts = (
        _read_kernel_facts(machine) | _read_tuning(machine) | _read_package_versions() | _read_system_libraries(machine)
    )
    on_bus = [_pci_class(machine, address) for address in machine.names(_PCI)]
    found = InstalledSoftware(
        machine=facts,
        gpus_on_bus=max(sum(kind in _GPU_CLASSES for kind in on_bus), _device_files(machine)),
        switches_on_bus=sum(kind == _SWITCH_CLASS for kind in on_bus),
        fabric_manager=_fabric_manager(machine),
    )
    try:
        driver = NvmlDriver(note)
    except NoDriverError as error:
        return msgspec.structs.replace(found, no_driver=str(error), driver_mismatch=error.mismatch)
    cuda = driver.number("SystemGetCudaDriverVersion_v2")
    facts |= {"driver": driver.text("SystemGetDriverVersion"), "nvml": driver.text("SystemGetNVMLVersion")}
    facts |= {"cuda_driver": f"{cuda // 1000}.{cuda % 1000 // 10}"} if cuda else {}
    gpus = []
    for index, handle in enumerate(driver.gpus()):
        note(f"GPU {index}: modes and versions")
        if handle is not None:
            gpus.append(_read_gpu_modes(driver, handle, index))
    return msgspec.structs.replace(found, machine={k: v for k, v in facts.items() if v != ""}, gpus=tuple(gpus))


def parse_torch_build(text: str) -> dict[str, str]:
    """The version and CUDA version in torch's ``version.py``, without importing torch, which takes seconds."""
    facts = {}
    for fact, name in (("torch", "__version__"), ("torch_cuda", "cuda"), ("torch_commit", "git_version")):
        if found := re.search(rf"^{name}\b[^=\n]*= *['\"]([^'\"]+)", text, re.MULTILINE):
            facts[fact] = found[1]
    return facts


def _read_kernel_facts(machine: Machine) -> dict[str, str | int]:
    release = (line.partition("=") for line in (machine.text("/etc/os-release") or "").splitlines())
    os_release = {key: value.strip("\"'") for key, _, value in release}
    cpuinfo = machine.text("/proc/cpuinfo") or ""
    facts: dict[str, str | int] = {
        "kernel": machine.text("/proc/sys/kernel/osrelease") or "",
        "os": os_release.get("PRETTY_NAME", ""),
        "image": " ".join(os_release[key] for key in ("IMAGE_ID", "IMAGE_VERSION") if os_release.get(key)),
        "kernel_options": select_relevant_options(machine.text("/proc/cmdline") or ""),
        "cpu": _find_first_match(r"^model name\s*: (.+)$", cpuinfo),
        "microcode": " ".join(sorted(set(re.findall(r"^microcode\s*: (\S+)", cpuinfo, re.MULTILINE)))),
        "bios": machine.text("/sys/class/dmi/id/bios_version") or "",
        "board": machine.text("/sys/class/dmi/id/product_name") or "",
        "driver_module": _find_first_match(
            r"Kernel Module.*?\s(\d+\.[\d.]+)\s", machine.text("/proc/driver/nvidia/version") or ""
        ),
        "mlx5": machine.text("/sys/module/mlx5_core/version") or "",
        "peer_memory": "loaded" if machine.names("/sys/module/nvidia_peermem") else "",
    }
    return {key: value for key, value in facts.items() if value != ""}


def _read_tuning(machine: Machine) -> dict[str, str | int]:
    """CPU frequency settings and clock source."""
    memory = _find_first_match(r"^MemTotal:\s+(\d+) kB", machine.text("/proc/meminfo") or "")
    pages = machine.text("/sys/kernel/mm/transparent_hugepage/enabled") or ""
    facts: dict[str, str | int] = {
        "clock_source": machine.text("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "",
        "governor": machine.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "",
        "huge_pages": _find_first_match(r"\[(\w+)\]", pages),
        "numa_balancing": machine.text("/proc/sys/kernel/numa_balancing") or "",
        "numa_nodes": sum(
            name[4:].isdecimal() for name in machine.names("/sys/devices/system/node") if name[:4] == "node"
        ),
        "cpus": os.cpu_count() or 0,
        "memory_gib": round(int(memory) / (1 << 20)) if memory else 0,
    }
    return {key: value for key, value in facts.items() if value not in {"", 0}}


def _read_package_versions() -> dict[str, str | int]:
    facts: dict[str, str | int] = {"python": platform.python_version()}
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        version = Path(torch.origin).with_name("version.py")
        facts |= parse_torch_build(version.read_text()) if version.is_file() else {}
    for fact, names in (("nccl", _NCCL_PACKAGES), ("triton", ("triton",)), ("preflight", ("gpu-healthd",))):
        for name in names:
            try:
                facts.setdefault(fact, importlib.metadata.version(name))
            except importlib.metadata.PackageNotFoundError:
                continue
    return facts


def _read_system_libraries(machine: Machine) -> dict[str, str | int]:
    """System-wide NCCL: images from the GPU manufacturer have it without a Python package."""
    for folder in _LIBRARY_FOLDERS:
        if found := machine.target(f"{folder}/libnccl.so.2"):
            return {"nccl_system": found.rpartition("libnccl.so.")[2]}
    return {}


def _read_gpu_modes(driver: NvmlDriver, handle: Any, index: int) -> InstalledGpu:
    ecc, mig = driver.ask("DeviceGetEccMode", handle), driver.ask("DeviceGetMigMode", handle)
    persistence = driver.number("DeviceGetPersistenceMode", handle)
    bar1, memory = driver.ask("DeviceGetBAR1MemoryInfo", handle), driver.ask("DeviceGetMemoryInfo", handle)
    limit, usual = (
        driver.number(f"DeviceGet{name}", handle) for name in ("EnforcedPowerLimit", "PowerManagementDefaultLimit")
    )
    state, status = read_fabric_state(driver, handle)
    return InstalledGpu(
        index=index,
        product=driver.text("DeviceGetName", handle),
        vbios=driver.text("DeviceGetVbiosVersion", handle),
        inforom=driver.text("DeviceGetInforomImageVersion", handle),
        ecc=None if ecc is None else bool(ecc[0]),
        ecc_after_reset=None if ecc is None else bool(ecc[1]),
        mig=None if mig is None else bool(mig[0]),
        persistence=None if persistence is None else bool(persistence),
        compute_mode=driver.number("DeviceGetComputeMode", handle),
        bar1_mib=None if bar1 is None else bar1.bar1Total >> 20,
        memory_mib=None if memory is None else memory.total >> 20,
        power_limit_w=None if limit is None else limit // 1000,
        power_limit_default_w=None if usual is None else usual // 1000,
        fabric_state=state,
        fabric_status=status,
    )


def read_fabric_state(driver: NvmlDriver, handle: Any) -> tuple[int | None, int | None]:
    """State and status of the GPU's registration with its fabric; None and None without a fabric."""
    info = driver.library.c_nvmlGpuFabricInfo_t()
    if driver.ask("DeviceGetGpuFabricInfo", handle, ctypes.byref(info)) is None:
        return None, None
    if info.state == driver.library.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        return None, None
    return int(info.state), int(info.status)


def _fabric_manager(machine: Machine) -> bool | None:
    """Whether its process runs. In a container, whose first process is not an init, the node's processes are not visible."""
    if any(machine.text(f"/proc/{pid}/comm") == _FABRIC_MANAGER for pid in machine.names("/proc") if pid.isdecimal()):
        return True
    return False if machine.text("/proc/1/comm") in _INITS else None


def _device_files(machine: Machine) -> int:
    """A container may hide the bus; a GPU that it may use still has a device file."""
    return sum(re.fullmatch(r"nvidia\d+", name) is not None for name in machine.names("/dev"))


def _pci_class(machine: Machine, address: str) -> int:
    if machine.number(f"{_PCI}/{address}/vendor") != _NVIDIA:
        return 0
    return (machine.number(f"{_PCI}/{address}/class") or 0) >> 8


def _find_first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""

"""Checks of the GPU driver, queried in a child process as healthd does, because a call may never return."""

from __future__ import annotations

import time
from collections.abc import Iterator

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthd.collectors.machine_access import MachineAccess
from healthd.config import Config
from healthd.gpu_monitoring.nvml_collector import NvmlCollector
from healthd.host import Host
from healthd.samples.nvml import Inventory, NvmlHang, NvmlUnavailable

DEADLINE_S = 40.0  # above the collector's own deadline for starting a driver
NVIDIA = "0x10de"
_WHY = "it provides temperatures, ECC, row remapping, links, and the GPU that a kernel line refers to"


def check_hardware(config: Config, root: str = "/") -> Iterator[Diagnosis]:  # noqa: ARG001 - as all parts of the doctor
    """Check for NVIDIA devices on the PCI bus."""
    machine = MachineAccess(root)
    devices = machine.names("/sys/bus/pci/devices")
    found = [name for name in devices if machine.text(f"/sys/bus/pci/devices/{name}/vendor") == NVIDIA]
    if found:
        yield diagnose_good("hardware", f"{len(found)} NVIDIA devices on the PCI bus")
    else:
        why = "healthd monitors GPU nodes; here it can only monitor the host"
        yield diagnose_absent("hardware", f"no NVIDIA device among {len(devices)} on the PCI bus", why)


def check_driver(config: Config) -> Iterator[Diagnosis]:
    """Check that the driver is installed and responds, and how its GPUs are configured."""
    collector = NvmlCollector(Host(nvml_library=config.nvml.library), config.nvml.interval_s, config.nvml.deadline_s)
    try:
        found = _await_first_response(collector)
    finally:
        collector.close()
    if isinstance(found, Inventory):
        yield from _check_inventory(found)
    elif isinstance(found, NvmlHang):
        todo = "check dmesg for Xid lines; a GPU that hangs its driver needs a reboot"
        yield diagnose_bad("NVML", f"hangs in {found.call} (GPU {found.index})", _WHY, todo)
    elif found is None:
        yield diagnose_bad(
            "NVML", f"no response within {DEADLINE_S:.0f} s", _WHY, "check dmesg for Xid lines; try nvidia-smi"
        )
    else:
        todo = "install the NVIDIA driver, or name its library in nvml.library; check that nvidia-smi works"
        yield diagnose_bad("NVML", found.reason, _WHY, todo)


def _await_first_response(collector: NvmlCollector) -> Inventory | NvmlHang | NvmlUnavailable | None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        for sample in collector.poll():
            if isinstance(sample, Inventory | NvmlHang | NvmlUnavailable):
                return sample
        time.sleep(0.02)
    return None


def _check_inventory(inventory: Inventory) -> Iterator[Diagnosis]:
    names = sorted({gpu.name for gpu in inventory.gpus})
    yield diagnose_good("NVML", f"driver {inventory.driver}, {inventory.count} GPUs: {', '.join(names) or 'none'}")
    silent = inventory.count - len(inventory.gpus)
    if silent:
        yield diagnose_bad(
            "GPUs", f"{silent} of {inventory.count} do not report their identity", _WHY, "check dmesg for Xid lines"
        )
    if not inventory.count:
        yield diagnose_absent(
            "GPUs", "the driver reports no GPU", "there is no GPU to monitor", "lspci -d 10de: shows them"
        )
    without = [str(constants.index) for constants in inventory.constants if constants.ecc_enabled is False]
    if without:
        why = "memory errors go undetected, and corrupt checkpoints"
        yield diagnose_bad("ECC", f"off on GPU {', '.join(without)}", why, "nvidia-smi -e 1, then reboot")
    lapsing = [str(constants.index) for constants in inventory.constants if constants.persistence is False]
    if lapsing:
        why = "the driver unloads when idle: each first call takes seconds, and volatile counters reset"
        yield diagnose_absent("persistence", f"off on GPU {', '.join(lapsing)}", why, "start nvidia-persistenced")

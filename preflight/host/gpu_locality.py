"""Finds the NVIDIA GPU nearest to an adapter, by the kernel's tree of PCI devices."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from vocabulary.hardware.machine_files import Machine

SAME_SWITCH = "same PCIe switch"
SAME_BRIDGE = "same host bridge"
SAME_NUMA = "same NUMA node"
FAR = "other NUMA node"
_DRIVER = "/proc/driver/nvidia/gpus"
_PCI = "/sys/bus/pci/devices"


class NearGpu(msgspec.Struct, frozen=True):
    """A GPU by its PCI address, and what it shares with the adapter, from SAME_SWITCH to FAR."""

    address: str
    shares: str


def find_nearest_gpu(machine: Machine, adapter: str, uuids: Collection[str]) -> NearGpu | None:
    """The nearest GPU of those with these UUIDs to the adapter whose sysfs folder this is; None if there is none."""
    numa = machine.number(f"{adapter}/numa_node")
    path = machine.target(adapter).split("/")
    ranked = []
    for address in machine.names(_DRIVER):
        if _read_uuid(machine, address) not in uuids:
            continue
        common = _count_common_parts(path, machine.target(f"{_PCI}/{address}").split("/"))
        near = numa is not None and numa == machine.number(f"{_PCI}/{address}/numa_node")
        ranked.append((-common, not near, address))
    if not ranked:
        return None
    common, far, address = min(ranked)
    # "", "sys", "devices", the host bridge, then its ports: who shares one is behind the same switch.
    shares = SAME_SWITCH if common < -4 else SAME_BRIDGE if common == -4 else FAR if far else SAME_NUMA
    return NearGpu(address, shares)


def _read_uuid(machine: Machine, address: str) -> str:
    for line in (machine.text(f"{_DRIVER}/{address}/information") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "GPU UUID":
            return value.strip()
    return ""


def _count_common_parts(one: list[str], other: list[str]) -> int:
    pairs = list(zip(one, other, strict=False))
    return next((number for number, (a, b) in enumerate(pairs) if a != b), len(pairs))

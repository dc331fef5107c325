"""The PCIe link of a GPU: current and maximum width and speed, replays, nearby CPUs."""

from __future__ import annotations

from typing import Any

import msgspec

from preflight.host.memory_budget import parse_number_list
from preflight.host.nvml_driver import NvmlDriver
from vocabulary.hardware.machine_files import Machine, parse_aer_total, parse_leading_number

_DEVICES = "/sys/bus/pci/devices"
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}  # GT/s
REPLAYS_MAX = 80  # in one test; each costs microseconds, and a healthy link has none


class PcieLink(msgspec.Struct, frozen=True, kw_only=True):
    """One reading. None is unknown: a virtual machine, or a driver without the value.

    `width_max` and `generation_max` are the maximum of device and slot together; `device_width_max` that of the device in a
    better slot.
    """

    address: str = ""
    width: int | None = None
    width_max: int | None = None
    device_width_max: int | None = None
    generation: int | None = None
    generation_max: int | None = None
    replays: int | None = None
    corrected: int | None = None
    uncorrected: int | None = None
    numa: int | None = None
    cpus: tuple[int, ...] = ()


def read_pcie_link(machine: Machine, driver: NvmlDriver | None, gpu: Any, address: str) -> PcieLink:
    """Read from driver and kernel; with both, the driver gives the current values and both limit the maximum."""
    where = f"{_DEVICES}/{address}"
    ask = driver.number if driver is not None and gpu is not None else lambda *_: None
    above = machine.target(where).rpartition("/")[0]
    slot = above if machine.number(f"{above}/max_link_width") is not None else ""
    device_width = ask("DeviceGetMaxPcieLinkWidth", gpu) or machine.number(f"{where}/max_link_width") or None
    slot_width = machine.number(f"{slot}/max_link_width") or None if slot else None
    generations = [
        ask("DeviceGetMaxPcieLinkGeneration", gpu) or None,
        _parse_generation(machine, f"{where}/max_link_speed"),
        _parse_generation(machine, f"{slot}/max_link_speed") if slot else None,
    ]
    numa = machine.number(f"{where}/numa_node")
    uncorrected = [
        parse_aer_total(machine.text(f"{where}/aer_dev_{kind}") or "", kind.upper()) for kind in ("nonfatal", "fatal")
    ]
    return PcieLink(
        address=address,
        width=ask("DeviceGetCurrPcieLinkWidth", gpu) or machine.number(f"{where}/current_link_width") or None,
        width_max=_find_minimum(device_width, slot_width),
        device_width_max=device_width,
        generation=ask("DeviceGetCurrPcieLinkGeneration", gpu)
        or _parse_generation(machine, f"{where}/current_link_speed"),
        generation_max=_find_minimum(*generations),
        replays=ask("DeviceGetPcieReplayCounter", gpu),
        corrected=parse_aer_total(machine.text(f"{where}/aer_dev_correctable") or "", "COR"),
        uncorrected=None if None in uncorrected else sum(count or 0 for count in uncorrected),
        numa=numa if numa is not None and numa >= 0 else None,
        cpus=parse_number_list(machine.text(f"{where}/local_cpulist") or ""),
    )


def judge_pcie_link(before: PcieLink, busy: PcieLink, after: PcieLink) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Faults and remarks of a link before, during and after use: `busy` is the best reading under load. Pure.

    An idle GPU lowers its link's generation to save power, so only the reading under load counts.
    """
    faults, remarks = [], []
    if busy.width and busy.width_max and busy.width < busy.width_max:
        faults.append(
            f"the PCIe link has {busy.width} of {busy.width_max} lanes; reseat the GPU or its riser, then replace"
        )
    elif busy.width and busy.device_width_max and busy.width < busy.device_width_max:
        remarks.append(
            f"the PCIe link has {busy.width} lanes, all that the slot has; the GPU supports {busy.device_width_max}"
        )
    if busy.generation and busy.generation_max and busy.generation < busy.generation_max:
        says = f"the PCIe link runs at generation {busy.generation} of {busy.generation_max} under load"
        faults.append(f"{says}; reseat the GPU or its riser, then replace")
    if (replays := _compute_growth(before.replays, after.replays)) > REPLAYS_MAX:
        faults.append(f"the PCIe link replayed {replays} packets during the test; reseat the GPU or its riser")
    elif after.address and after.replays is None:
        remarks.append("the driver does not report replays of the PCIe link")
    elif replays:
        remarks.append(f"the PCIe link replayed {replays} packets during the test")
    if uncorrected := _compute_growth(before.uncorrected, after.uncorrected):
        faults.append(f"{uncorrected} uncorrectable PCIe errors during the test; check the kernel log")
    if corrected := _compute_growth(before.corrected, after.corrected):
        remarks.append(f"{corrected} corrected PCIe errors during the test")
    return tuple(faults), tuple(remarks)


def merge_best_readings(one: PcieLink, other: PcieLink) -> PcieLink:
    """The better of two readings under load: between two copies the link may already sleep. Pure."""
    return msgspec.structs.replace(
        other,
        width=max(one.width or 0, other.width or 0) or None,
        generation=max(one.generation or 0, other.generation or 0) or None,
    )


def _parse_generation(machine: Machine, path: str) -> int | None:
    """``32.0 GT/s PCIe`` is generation 5; "Unknown" is None."""
    return _GENERATIONS.get(parse_leading_number(machine.text(path) or "") or 0.0)


def _find_minimum(*values: int | None) -> int | None:
    return min((value for value in values if value), default=None)


def _compute_growth(before: int | None, after: int | None) -> int:
    return max(0, after - before) if before is not None and after is not None else 0

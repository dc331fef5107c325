"""Errors and remarks about a node's software and modes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from preflight.host.installed_software import InstalledGpu, InstalledSoftware
from preflight.results import Evidence

_DESKTOP = ("GeForce", "Quadro", "TITAN", "RTX")  # these are sold with ECC off
_EXCLUSIVE, _PROHIBITED = 3, 2  # nvmlComputeMode_t
_COMPLETED = 3  # nvmlGpuFabricState
_ALIKE = ("product", "vbios", "inforom", "memory_mib", "bar1_mib")
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


def _ecc_off(gpu: InstalledGpu) -> bool:
    return gpu.ecc is False and not gpu.product.removeprefix("NVIDIA ").startswith(_DESKTOP)


def _power_lowered(gpu: InstalledGpu) -> bool:
    limit, usual = gpu.power_limit_w, gpu.power_limit_default_w
    return limit is not None and usual is not None and limit < usual


# Name, the GPUs concerned, the message, and whether it is an error.
_MODES: tuple[tuple[str, Callable[[InstalledGpu], bool], str, bool], ...] = (
    ("ecc_off", _ecc_off, "ECC is off on {}: memory errors are not detected; run nvidia-smi -e 1, then reset", True),
    (
        "mig_on",
        lambda gpu: gpu.mig is True,
        "MIG mode is enabled on {}: no job can use the whole GPU; run nvidia-smi -mig 0, then reset",
        True,
    ),
    (
        "compute_prohibited",
        lambda gpu: gpu.compute_mode == _PROHIBITED,
        "compute mode of {} forbids every job; run nvidia-smi -c 0",
        True,
    ),
    (
        "compute_exclusive",
        lambda gpu: gpu.compute_mode == _EXCLUSIVE,
        "compute mode of {} allows only one process",
        False,
    ),
    (
        "ecc_pending",
        lambda gpu: gpu.ecc != gpu.ecc_after_reset is not None,
        "ECC mode of {} changes with the next reset",
        False,
    ),
    (
        "persistence_off",
        lambda gpu: gpu.persistence is False,
        "persistence mode is off on {}: the driver restarts with each job; start nvidia-persistenced",
        False,
    ),
    ("power_limit_low", _power_lowered, "the power limit of {} is set below its default", False),
)


class NodeState(msgspec.Struct, frozen=True):
    """One property of a node. An operator must fix a `wrong` one before work may start; `name` is the name for a site's allow list."""

    name: str
    says: str
    wrong: bool = True


def list_states(software: InstalledSoftware, allowed: Collection[str] = ()) -> tuple[NodeState, ...]:
    """All states, errors first. A state whose name is in `allowed` is listed, but is not an error."""
    found = (
        *_check_driver(software),
        *_check_libraries(software),
        *_check_modes(software.gpus),
        *_check_fabric(software),
        *_check_host(software),
    )
    judged = [msgspec.structs.replace(state, wrong=state.wrong and state.name not in allowed) for state in found]
    return tuple(sorted(judged, key=lambda state: not state.wrong))


def collect_comparable_facts(software: InstalledSoftware) -> Evidence:
    """A flat dict to compare nodes by, without serial numbers and addresses, which always differ."""
    flat: Evidence = dict(software.machine)
    flat["gpus"] = len(software.gpus)
    if software.gpus_on_bus:
        flat["gpus_on_bus"] = software.gpus_on_bus
    if software.switches_on_bus:
        flat["nvswitches_on_bus"] = software.switches_on_bus
    if software.fabric_manager is not None and (software.switches_on_bus or software.fabric_manager):
        flat["fabric_manager"] = "runs" if software.fabric_manager else "is not running"
    for name in InstalledGpu.__struct_fields__[1:]:
        words = _all_gpus(software.gpus, name)
        if words is not None:
            flat[name] = words
    return flat


def _all_gpus(gpus: Sequence[InstalledGpu], name: str) -> str | int | bool | None:
    """The value that all GPUs share; if they differ, with their GPUs: ``96.00 (GPU 0, 1), 96.01 (GPU 2)``. None if no GPU has one."""
    values: dict[str | int | bool, list[int]] = {}
    for gpu in gpus:
        value = getattr(gpu, name)
        if value is not None and value != "":
            values.setdefault(value, []).append(gpu.index)
    if not values:
        return None
    if len(values) == 1 and sum(map(len, values.values())) == len(gpus):
        return next(iter(values))
    return ", ".join(f"{value} ({_name_gpus(who)})" for value, who in values.items())


def _check_driver(software: InstalledSoftware) -> Iterator[NodeState]:
    module, library = software.machine.get("driver_module", ""), software.machine.get("driver", "")
    if software.driver_mismatch or (module and library and module != library):
        yield NodeState(
            "driver_mismatch",
            f"the kernel module is from driver {module or 'another version'}, the library from {library or 'another'}: "
            "the driver was upgraded while in use; reboot the node",
        )
    elif software.no_driver and software.gpus_on_bus:
        says = f"this machine has GPUs, but no driver answers: {software.no_driver}"
        yield NodeState("no_driver", says)
    seen = len(software.gpus)
    if seen and software.gpus_on_bus > seen:
        says = f"the PCI bus shows {software.gpus_on_bus} GPUs, the driver shows {seen}: only those are tested"
        yield NodeState("gpus_missing", says, wrong=False)


def _check_libraries(software: InstalledSoftware) -> Iterator[NodeState]:
    built, has = str(software.machine.get("torch_cuda", "")), str(software.machine.get("cuda_driver", ""))
    if not software.gpus or not software.gpus_on_bus:
        return  # a simulated driver offers nothing that torch could use
    if "torch" in software.machine and not built:
        yield NodeState("torch_without_cuda", "torch is built without CUDA and can use no GPU; install a CUDA build")
    if built and has and _parse_major_version(built) > _parse_major_version(has):
        says = (
            f"torch is built for CUDA {built}, the driver has {has}; install a newer driver or an older build of torch"
        )
        yield NodeState("torch_too_new", says)


def _check_modes(gpus: Sequence[InstalledGpu]) -> Iterator[NodeState]:
    for name, holds, says, wrong in _MODES:
        if who := [gpu.index for gpu in gpus if holds(gpu)]:
            yield NodeState(name, says.format(_name_gpus(who)), wrong)
    for name in _ALIKE:
        if len({value for gpu in gpus if (value := getattr(gpu, name)) not in {None, ""}}) > 1:
            yield NodeState(f"{name}_differs", f"{name} differs between GPUs: {_all_gpus(gpus, name)}", wrong=False)


def _check_fabric(software: InstalledSoftware) -> Iterator[NodeState]:
    waiting = [gpu.index for gpu in software.gpus if gpu.fabric_state is not None and gpu.fabric_state != _COMPLETED]
    failed = [gpu.index for gpu in software.gpus if gpu.fabric_state == _COMPLETED and gpu.fabric_status]
    todo = "check that nvidia-fabricmanager has the driver's version, then restart it"
    if waiting:
        yield NodeState("fabric_not_joined", f"{_name_gpus(waiting)} have not joined the NVLink fabric; {todo}")
    if failed:
        yield NodeState("fabric_failed", f"{_name_gpus(failed)} failed to join the NVLink fabric; {todo}")
    joined = bool(software.gpus) and all(gpu.fabric_state == _COMPLETED for gpu in software.gpus)
    if not software.switches_on_bus or software.fabric_manager or waiting or failed:
        return
    if software.fabric_manager is None and not joined:
        yield NodeState(
            "fabric_manager_unseen", "this container cannot see whether the fabric manager is running", wrong=False
        )
    elif software.fabric_manager is False:
        says = (
            f"{software.switches_on_bus} NVSwitches, but the fabric manager is not running; start nvidia-fabricmanager"
        )
        yield NodeState("fabric_manager_down", says, wrong=not joined)


def _check_host(software: InstalledSoftware) -> Iterator[NodeState]:
    clock, governor = (str(software.machine.get(name, "")) for name in ("clock_source", "governor"))
    if clock in _SLOW_CLOCKS:
        yield NodeState("clock_slow", f"the kernel's clock source is {clock}: reading the time is slow", wrong=False)
    if governor == "powersave" and "Intel" not in str(
        software.machine.get("cpu", "")
    ):  # Intel's own driver calls all but one mode so
        yield NodeState("governor_powersave", "the CPU frequency governor is powersave", wrong=False)
    if " " in str(software.machine.get("microcode", "")):
        yield NodeState("microcode_differs", f"CPUs differ in microcode: {software.machine['microcode']}", wrong=False)


def _parse_major_version(version: str) -> int:
    head = version.partition(".")[0]
    return int(head) if head.isdecimal() else 0


def _name_gpus(indices: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, indices))}" if indices else ""

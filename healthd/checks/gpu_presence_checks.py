"""GPUs that stopped answering, are missing, or are new.

A new or exchanged GPU is no fault but a repair. It is recorded as context for later findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.findings.facts import Clear, Fact, Raise, make_gpu_component
from healthd.samples.nvml import Inventory, Sweep
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

CHECK = "gpu_presence"


def judge_lost_gpus(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """Report a GPU that the driver calls lost, and clear it when it answers again."""
    facts: list[Fact] = []
    for reading in sweep.readings:
        gpu = gpus.get(reading.index)
        if gpu is None:
            continue
        if reading.lost:
            summary = f"GPU {gpu.index} is lost: the driver no longer reaches it ({gpu.pci})"
            facts.append(_raise_fatal("lost", gpu, summary, sweep.at))
        elif reading.temperature_c is not None:
            facts.append(_clear_gpu_code("lost", gpu, sweep.at, "NVML: it answers again"))
    return facts


def judge_gpu_inventory(inventory: Inventory, expected: Iterable[Gpu], at: float) -> list[Fact]:
    """Compare with the GPUs this node had. One that was replaced in its slot is not missing."""
    known = {gpu.pci: gpu for gpu in expected}
    facts: list[Fact] = [note for gpu in inventory.gpus for note in _judge_new_gpu(gpu, known, at)]
    places = {gpu.pci for gpu in inventory.gpus}
    silent = inventory.count - len(inventory.gpus)  # enumerated but not identified: lost, not missing
    for gpu in known.values():
        if gpu.pci in places:
            facts.append(_clear_gpu_code("vanished", gpu, at, "NVML: it is enumerated again"))
        elif silent == 0:
            summary = f"GPU {gpu.index} is missing: NVML no longer enumerates {gpu.pci} ({gpu.uuid})"
            facts.append(_raise_fatal("vanished", gpu, summary, at, provable=True))
    return facts


def _judge_new_gpu(gpu: Gpu, known: Mapping[str, Gpu], at: float) -> list[Fact]:
    """Describe what is new about a present GPU; nothing, if none was known before."""
    before = known.get(gpu.pci)
    if before is None:
        return [_raise_info("appeared", gpu, f"GPU {gpu.index} ({gpu.uuid}) is new at {gpu.pci}", at)] if known else []
    changes = {
        name: f"{old} -> {new}"
        for name, old, new in (("uuid", before.uuid, gpu.uuid), ("serial", before.serial, gpu.serial))
        if old and new and old != new
    }
    if not changes:
        return []
    said = ", ".join(f"{name} {change}" for name, change in changes.items())
    return [_raise_info("changed", gpu, f"GPU {gpu.index} at {gpu.pci} is another one than before: {said}", at)]


def _raise_info(code: str, gpu: Gpu, summary: str, at: float) -> Raise:
    return Raise(
        check=CHECK,
        code=code,
        component=make_gpu_component(gpu),
        severity=Severity.INFO,
        summary=summary,
        at=at,
        event=True,
    )


def _raise_fatal(code: str, gpu: Gpu, summary: str, at: float, *, provable: bool = False) -> Raise:
    return Raise(
        check=CHECK,
        code=code,
        component=make_gpu_component(gpu),
        severity=Severity.FATAL,
        summary=summary,
        at=at,
        provable=provable,
    )


def _clear_gpu_code(code: str, gpu: Gpu, at: float, by: str) -> Clear:
    return Clear(check=CHECK, code=code, component=make_gpu_component(gpu), at=at, by=by)

"""GPUs that do not answer any more, or are not there any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from healthd.facts import Clear, Fact, Raise, gpu_component
from healthd.samples.nvml import Inventory, Sweep
from vocabulary.finding import Severity
from vocabulary.wire import Gpu

CHECK = "gpu_presence"


def judge_sweep(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """A GPU that the driver calls lost, and one that answers again."""
    facts: list[Fact] = []
    for reading in sweep.readings:
        gpu = gpus.get(reading.index)
        if gpu is None:
            continue
        if reading.lost:
            summary = f"GPU {gpu.index} is lost: the driver no longer reaches it ({gpu.pci})"
            facts.append(_fatal("lost", gpu, summary, sweep.at))
        elif reading.temperature_c is not None:
            facts.append(_clear("lost", gpu, sweep.at, "NVML: it answers again"))
    return facts


def judge_inventory(inventory: Inventory, expected: Iterable[Gpu], at: float) -> list[Fact]:
    """Compare with the GPUs this node had. One that was replaced in its slot is not missing."""
    facts: list[Fact] = []
    places = {gpu.pci for gpu in inventory.gpus}
    silent = inventory.count - len(inventory.gpus)  # enumerated, but would not say who they are: lost, not vanished
    for gpu in expected:
        if gpu.pci in places:
            facts.append(_clear("vanished", gpu, at, "NVML: it is enumerated again"))
        elif silent == 0:
            summary = f"GPU {gpu.index} has vanished: NVML no longer enumerates {gpu.pci} ({gpu.uuid})"
            facts.append(_fatal("vanished", gpu, summary, at, provable=True))
    return facts


def _fatal(code: str, gpu: Gpu, summary: str, at: float, *, provable: bool = False) -> Raise:
    return Raise(
        check=CHECK,
        code=code,
        component=gpu_component(gpu),
        severity=Severity.FATAL,
        summary=summary,
        at=at,
        provable=provable,
    )


def _clear(code: str, gpu: Gpu, at: float, by: str) -> Clear:
    return Clear(check=CHECK, code=code, component=gpu_component(gpu), at=at, by=by)

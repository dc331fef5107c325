"""Memory rows of a GPU that are to be replaced, or could not be."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.facts import Clear, Fact, Raise, gpu_component
from healthd.samples.nvml import MemoryReading, Sweep
from vocabulary.finding import Evidence, Severity
from vocabulary.wire import Gpu

CHECK = "row_remap"
_FLAGS = (
    ("pending", Severity.ERROR, "row remapping is pending on GPU {}: it takes effect with the next GPU reset"),
    ("failure", Severity.FATAL, "row remapping failed on GPU {}: no spare row is left; replace the GPU"),
)


def judge(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """Pending: works, but wants a reset before new work. Failure: does not get better. Unknown says nothing."""
    facts: list[Fact] = []
    for reading in sweep.readings:
        gpu, memory = gpus.get(reading.index), reading.memory
        if gpu is None or memory is None:
            continue
        component = gpu_component(gpu)
        for (code, severity, summary), flag in zip(_FLAGS, (memory.remap_pending, memory.remap_failed), strict=True):
            if flag is None:
                continue
            if flag:
                fact: Fact = Raise(
                    check=CHECK,
                    code=code,
                    component=component,
                    severity=severity,
                    summary=summary.format(gpu.index),
                    at=sweep.at,
                    evidence=_counts(memory),
                )
            else:
                fact = Clear(check=CHECK, code=code, component=component, at=sweep.at, by="NVML: the flag is clear")
            facts.append(fact)
    return facts


def _counts(memory: MemoryReading) -> Evidence:
    counts = {"corrected": memory.rows_remapped_corrected, "uncorrected": memory.rows_remapped_uncorrected}
    return {f"rows_remapped_{name}": count for name, count in counts.items() if count is not None}

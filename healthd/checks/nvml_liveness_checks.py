"""Whether the driver answers. A call that never returns is a fault of its own."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.findings.facts import Clear, Fact, Raise, make_gpu_component
from healthd.samples.nvml import Inventory, NvmlHang, NvmlUnavailable, Sweep
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu

CHECK = "nvml"
_HOST = Component(ComponentKind.HOST)


def judge_hang(hang: NvmlHang, gpus: Mapping[int, Gpu], first: NvmlHang) -> Raise:
    """Report the GPU whose call hung, if known: a warning first, critical when the next attempt hangs too.

    A driver that is busy, such as with another GPU's reset, may block one caller for a while. `first` is the first hang
    of the same problem, or this one; it carries the start time. A simulated hang happens once and is critical at once.
    """
    place = "" if first.index is None else f" on GPU {first.index}"
    lasting = hang.injected or hang is not first
    seconds = max(0.0, hang.at - first.at) + first.seconds
    alone = "; it is skipped, and the other GPUs are still read" if hang.trial else ""
    return Raise(
        check=CHECK,
        code="hang" if lasting else "slow",
        component=_HOST if first.index is None else _make_gpu_component(first.index, gpus),
        severity=Severity.FATAL if lasting else Severity.WARNING,
        summary=f"NVML hangs in {first.call}{place}: no answer for {seconds:.0f} s{alone}",
        at=hang.at,
        injected=hang.injected,
        evidence={"call": first.call, "seconds": round(seconds, 1)},
    )


def judge_unavailable(sample: NvmlUnavailable) -> Raise:
    """Report that NVML is unavailable, so that nothing is known of the GPUs; `health_of` makes that unknown."""
    return Raise(
        check=CHECK,
        code="unavailable",
        component=_HOST,
        severity=Severity.WARNING,
        summary=f"NVML cannot be used: {sample.reason}",
        at=sample.at,
    )


def judge_completed_sweep(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """Clear hangs after a complete sweep, for every GPU it covered, but not for those left out."""
    by = "a complete NVML sweep"
    facts: list[Fact] = [Clear(check=CHECK, code=code, component=_HOST, at=sweep.at, by=by) for code in _CODES]
    for reading in sweep.readings:
        gpu = gpus.get(reading.index)
        if gpu is not None:
            component = make_gpu_component(gpu)
            facts += [Clear(check=CHECK, code=code, component=component, at=sweep.at, by=by) for code in _HANGS]
    return facts


def judge_renamed_gpus(inventory: Inventory, at: float) -> list[Fact]:
    """Move findings to a GPU's name once it is known, if it hung before it was identified."""
    nameless = [_make_gpu_component(gpu.index, {}) for gpu in inventory.gpus]
    by = "NVML: it is identified"
    return [Clear(check=CHECK, code=code, component=gpu, at=at, by=by) for gpu in nameless for code in _HANGS]


def _make_gpu_component(index: int, gpus: Mapping[int, Gpu]) -> Component:
    """Return the component for a GPU index, also before the GPU is identified."""
    gpu = gpus.get(index)
    return Component(ComponentKind.GPU, name=f"index {index}", index=index) if gpu is None else make_gpu_component(gpu)


_HANGS = ("slow", "hang")
_CODES = (*_HANGS, "unavailable")

"""Does the driver answer at all? A call that never returns is a fault of its own."""

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
    """The GPU it hung on, if one is known: watched at first, and said not to work when the next attempt hangs too.

    A driver that is busy, as with another GPU's reset, may keep one caller waiting. `first` is the first hang of the same
    trouble, or this one; it tells where the trouble began. A pretended hang happens once, and is meant.
    """
    place = "" if first.index is None else f" on GPU {first.index}"
    lasting = hang.injected or hang is not first
    seconds = max(0.0, hang.at - first.at) + first.seconds
    alone = "; it is left out, and the other GPUs are still read" if hang.trial else ""
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
    """Without NVML nothing is known of the GPUs; `health_of` makes that unknown, which is not good."""
    return Raise(
        check=CHECK,
        code="unavailable",
        component=_HOST,
        severity=Severity.WARNING,
        summary=f"NVML cannot be used: {sample.reason}",
        at=sample.at,
    )


def judge_completed_sweep(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """A whole sweep is proof that nothing hangs, for every GPU it covered; it says nothing about those left out."""
    by = "a whole NVML sweep"
    facts: list[Fact] = [Clear(check=CHECK, code=code, component=_HOST, at=sweep.at, by=by) for code in _CODES]
    for reading in sweep.readings:
        gpu = gpus.get(reading.index)
        if gpu is not None:
            component = make_gpu_component(gpu)
            facts += [Clear(check=CHECK, code=code, component=component, at=sweep.at, by=by) for code in _HANGS]
    return facts


def judge_renamed_gpus(inventory: Inventory, at: float) -> list[Fact]:
    """A GPU that hung before it said who it is has a name now: from here on it is judged under that name."""
    nameless = [_make_gpu_component(gpu.index, {}) for gpu in inventory.gpus]
    by = "NVML: it says who it is"
    return [Clear(check=CHECK, code=code, component=gpu, at=at, by=by) for gpu in nameless for code in _HANGS]


def _make_gpu_component(index: int, gpus: Mapping[int, Gpu]) -> Component:
    """The GPU at an index, also one that hung before it ever said who it is."""
    gpu = gpus.get(index)
    return Component(ComponentKind.GPU, name=f"index {index}", index=index) if gpu is None else make_gpu_component(gpu)


_HANGS = ("slow", "hang")
_CODES = (*_HANGS, "unavailable")

"""Does the driver answer at all? A call that never returns is a fault of its own."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.facts import Clear, Fact, Raise, gpu_component
from healthd.samples.nvml import NvmlHang, NvmlUnavailable, Sweep
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.wire import Gpu

CHECK = "nvml"
_HOST = Component(ComponentKind.HOST)


def judge_hang(hang: NvmlHang, gpus: Mapping[int, Gpu]) -> Raise:
    """The GPU it hung on, if one is known, does not work."""
    gpu = None if hang.index is None else gpus.get(hang.index)
    place = "" if hang.index is None else f" on GPU {hang.index}"
    return Raise(
        check=CHECK,
        code="hang",
        component=_HOST if gpu is None else gpu_component(gpu),
        severity=Severity.FATAL,
        summary=f"NVML hangs in {hang.call}{place}: no answer for {hang.seconds:.0f} s",
        at=hang.at,
        injected=hang.injected,
        evidence={"call": hang.call, "seconds": round(hang.seconds, 1)},
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


def judge_sweep(sweep: Sweep, gpus: Mapping[int, Gpu]) -> list[Fact]:
    """A whole sweep is proof that nothing hangs, for every GPU it covered."""
    by = "a whole NVML sweep"
    facts: list[Fact] = [Clear(check=CHECK, code=code, component=_HOST, at=sweep.at, by=by) for code in _CODES]
    for reading in sweep.readings:
        gpu = gpus.get(reading.index)
        if gpu is not None:
            facts.append(Clear(check=CHECK, code="hang", component=gpu_component(gpu), at=sweep.at, by=by))
    return facts


_CODES = ("hang", "unavailable")

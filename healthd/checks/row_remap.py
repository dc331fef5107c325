"""Memory rows of a GPU that are to be replaced, or could not be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from healthd.facts import Held, Moment, Raise, gpu_component, held
from healthd.gpus import GpuState
from healthd.samples.nvml import GpuReading
from vocabulary.finding import Evidence, Severity

CHECK = "row_remap"
_FLAGS = (
    (
        "pending",
        "remap_pending",
        Severity.ERROR,
        "row remapping is pending on GPU {}: it takes effect with the next GPU reset",
    ),
    (
        "failure",
        "remap_failed",
        Severity.FATAL,
        "row remapping failed on GPU {}: no spare row is left; replace the GPU",
    ),
)


class RowRemapCheck:
    """Pending: works, but wants a reset before new work. Failure: does not get better."""

    def __init__(self, limits: Callable[[str], Any]) -> None:
        del limits  # two flags of the driver; there is nothing to set

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[Held]:
        """A level for each flag that is set."""
        return [fact for state in gpus for flag in _FLAGS for fact in _judge(state, now, *flag)]


def _judge(state: GpuState, now: Moment, code: str, field: str, severity: Severity, summary: str) -> list[Held]:
    fact = Raise(
        check=CHECK,
        code=code,
        component=gpu_component(state.gpu),
        severity=severity,
        summary=summary.format(state.gpu.index),
        at=now.wall,
        evidence=_counts(state.latest),
    )
    return held(getattr(state.latest, field), fact)


def _counts(latest: GpuReading) -> Evidence:
    names = ("rows_remapped_corrected", "rows_remapped_uncorrected")
    return {name: count for name in names if (count := getattr(latest, name)) is not None}

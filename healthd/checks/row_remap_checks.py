"""GPU memory rows that are to be remapped, could not be, or will soon lack spares (Ampere and later)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from vocabulary.finding import Severity

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


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `row_remap` of the thresholds."""

    worn_banks: float
    rows_uncorrected: float


class RowRemapCheck:
    """Pending: works, but needs a reset before new work. Failure: does not recover. Worn: close to failure."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per driver flag that is set, and for nearly used-up spares."""
        return [fact for state in gpus for fact in (*_judge_remap_flags(state, now), *self._worn(state, now))]

    def _worn(self, state: GpuState, now: Moment) -> list[LevelFact]:
        banks, rows = state.latest.remap_histogram, state.latest.rows_remapped_uncorrected
        low, none = (None, None) if banks is None or len(banks) < 5 else banks[3:5]
        worn = None if low is None or none is None else low + none >= self._limits.worn_banks
        spares = judge_gpu_level(
            worn,
            state,
            now,
            (CHECK, "spares"),
            f"GPU {state.gpu.index} has memory banks with almost no spare rows: the next worn row may be the last one that can be remapped",
            evidence={"banks_low": low, "banks_none": none},
        )
        many = judge_gpu_level(
            None if rows is None else rows >= self._limits.rows_uncorrected,
            state,
            now,
            (CHECK, "many"),
            f"GPU {state.gpu.index} has many memory rows remapped for uncorrectable errors",
            evidence={"rows_remapped_uncorrected": rows},
        )
        return spares + many


def _judge_remap_flags(state: GpuState, now: Moment) -> list[LevelFact]:
    names = ("rows_remapped_corrected", "rows_remapped_uncorrected")
    rows = {name: getattr(state.latest, name) for name in names}
    facts: list[LevelFact] = []
    for code, field, severity, summary in _FLAGS:
        holds, words = getattr(state.latest, field), summary.format(state.gpu.index)
        facts += judge_gpu_level(holds, state, now, (CHECK, code), words, severity=severity, evidence=rows)
    return facts

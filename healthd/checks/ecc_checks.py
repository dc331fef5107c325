"""GPU memory errors: uncorrectable errors, frequent corrected errors, and worn-out SRAM.

The kernel log reports each error's effect once (Xids 48, 94, 95); these facts describe the current state.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.finding import Severity

CHECK = "ecc"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `ecc` of the thresholds."""

    uncorrected: float
    uncorrected_lifetime: float
    corrected_in_window: float
    window_s: float


class EccCheck:
    """Remembers the rate of corrected errors of each GPU."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._corrected = Growth(limits.window_s)
        self._storm = Dwell(0.0, limits.window_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return four facts per GPU."""
        return [fact for state in gpus for fact in (*self._counted(state, now), *self._storming(state, now))]

    def _counted(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, latest, index = self._limits, state.latest, state.gpu.index
        now_count, life_count = latest.ecc_uncorrected, latest.ecc_uncorrected_aggregate
        return [
            *judge_gpu_level(
                None if now_count is None else now_count >= limits.uncorrected,
                state,
                now,
                (CHECK, "uncorrected"),
                f"the memory of GPU {index} has had uncorrectable errors since the last GPU reset: data was lost",
                evidence={"errors": now_count},
            ),
            *judge_gpu_level(
                None if life_count is None else life_count >= limits.uncorrected_lifetime,
                state,
                now,
                (CHECK, "uncorrected_lifetime"),
                f"GPU {index} has had at least {limits.uncorrected_lifetime:g} uncorrectable memory errors in its life",
                evidence={"errors": life_count},
            ),
            *judge_gpu_level(
                latest.sram_threshold_exceeded,
                state,
                now,
                (CHECK, "sram_threshold"),
                f"GPU {index} has exceeded NVIDIA's threshold of uncorrectable SRAM errors",
                severity=Severity.ERROR,
            ),
        ]

    def _storming(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, key = self._limits, state.gpu.uuid
        growth = self._corrected.add(key, state.read.ecc_corrected, now.monotonic)
        said = None if growth is None else self._storm.judge(key, growth >= limits.corrected_in_window, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "corrected"),
            f"the memory of GPU {state.gpu.index} has many corrected errors: it may fail soon",
            evidence={"errors": growth, "window_s": limits.window_s},
        )

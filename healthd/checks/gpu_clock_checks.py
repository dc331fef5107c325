"""Busy GPUs with a low clock and no reported throttle reason.

A GPU with a known reason is not judged here: heat and power brakes belong to the throttle check, a power cap or a set
clock is intended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, is_gpu_busy, judge_gpu_level, median_of_siblings
from healthd.findings.hysteresis import Dwell

CHECK = "clocks"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `clocks` of the thresholds. Shares are of the maximum clock, and of the siblings' median."""

    busy_percent: float
    max_percent: float
    siblings_percent: float
    raise_after_s: float
    clear_after_s: float


class GpuClockCheck:
    """Remembers how long each GPU has been slow."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per busy GPU far below its maximum, and per GPU far below its siblings."""
        facts: list[LevelFact] = []
        for state in gpus:
            siblings = [clock for other in gpus if other is not state and (clock := self._clock(other)) is not None]
            usual = median_of_siblings(siblings)
            maximum = state.constants.sm_clock_max_mhz
            facts += self._judge(state, now, "low", maximum, self._limits.max_percent)
            facts += self._judge(state, now, "below_siblings", usual, self._limits.siblings_percent)
        return facts

    def _judge(
        self, state: GpuState, now: Moment, code: str, whole_mhz: float | None, percent: float
    ) -> list[LevelFact]:
        clock = self._clock(state)
        slow = None if not clock or not whole_mhz else clock < whole_mhz * percent / 100
        if slow and state.latest.throttle_mask:
            slow = None
        whole = "of its siblings' clocks" if code == "below_siblings" else "of its maximum clock"
        said = self._dwell.judge((state.gpu.uuid, code), slow, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, code),
            f"GPU {state.gpu.index} is busy but runs below {percent:g} % {whole}, without a known reason",
            evidence={"sm_clock_mhz": clock, "expected_mhz": whole_mhz},
        )

    def _clock(self, state: GpuState) -> int | None:
        """Return the clock of a busy GPU in MHz; an idle GPU's clock means nothing."""
        return state.latest.sm_clock_mhz if is_gpu_busy(state, self._limits.busy_percent) else None

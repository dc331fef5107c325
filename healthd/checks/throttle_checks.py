"""GPUs throttled by heat or by their power supply. A power cap, an idle GPU or a set clock is no fault."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.hardware.throttle_reasons import THROTTLE_REASONS

CHECK = "throttle"
_FAULTS = {
    "sw_thermal": "GPU {} is slowed down by the driver: it, or its memory, is too hot",
    "hw_thermal": "GPU {} is slowed down by its hardware: it is too hot",
    "hw_power_brake": "GPU {} is slowed down by the power supply's brake signal",
    "hw_slowdown": "GPU {} is slowed down by its hardware for an unknown reason",
}
_BITS = {name: bit for bit, name in THROTTLE_REASONS.items() if name in _FAULTS}
_CAUSES = _BITS["hw_thermal"] | _BITS["hw_power_brake"]  # with one of these, hw_slowdown is set as well


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `throttle` of the thresholds."""

    raise_after_s: float
    clear_after_s: float
    thermal_percent: float
    window_s: float


class ThrottleCheck:
    """Remembers how long each reason has been active, and the time lost to heat."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._thermal_ns = Growth(limits.window_s)
        self._often = Dwell(0.0, limits.window_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per lasting reason, and one for heat that comes and goes between samples."""
        return [
            fact for state in gpus for fact in (*self._judge_active_reasons(state, now), *self._thermal(state, now))
        ]

    def _judge_active_reasons(self, state: GpuState, now: Moment) -> list[LevelFact]:
        mask = state.latest.throttle_mask
        facts: list[LevelFact] = []
        for code, summary in _FAULTS.items():
            bad = None if mask is None else bool(mask & _BITS[code])
            if mask is not None and code == "hw_slowdown" and mask & _CAUSES:
                bad = False
            evidence = {"throttle_mask": mask, "temperature_c": state.latest.temperature_c}
            said = self._dwell.judge((state.gpu.uuid, code), bad, now.monotonic)
            facts += judge_gpu_level(
                said, state, now, (CHECK, code), summary.format(state.gpu.index), evidence=evidence
            )
        return facts

    def _thermal(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, key, counter = self._limits, state.gpu.uuid, state.read.throttled_thermal_ns
        growth = self._thermal_ns.add(key, counter, now.monotonic)
        percent = None if growth is None else 100e-9 * growth / limits.window_s
        bad = None if percent is None else percent >= limits.thermal_percent
        return judge_gpu_level(
            None if bad is None else self._often.judge(key, bad, now.monotonic),
            state,
            now,
            (CHECK, "thermal_time"),
            f"GPU {state.gpu.index} was slowed down by heat for {limits.thermal_percent:g} % of the time or more",
            evidence={"throttled_percent": percent, "window_s": limits.window_s},
        )

"""GPUs, and their memory, so hot that the driver slows them down or soon will."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell, judge_band

CHECK = "temperature"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `temperature` of the thresholds. Margins are degrees below the slowdown limit or the maximum."""

    core_margin_c: float
    core_margin_clear_c: float
    memory_margin_c: float
    memory_margin_clear_c: float
    raise_after_s: float
    clear_after_s: float


class TemperatureCheck:
    """Remembers how long each GPU has been hot."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per core and per memory without margin."""
        return [fact for state in gpus for fact in (*self._core(state, now), *self._memory(state, now))]

    def _core(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, latest = self._limits, state.latest
        margin = latest.temperature_margin_c
        if margin is None:
            margin = _compute_margin(latest.temperature_c, state.constants.slowdown_c)
        hot = judge_band(margin, bad=limits.core_margin_c, good=limits.core_margin_clear_c)
        said = self._dwell.judge((state.gpu.uuid, "core"), hot, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "core"),
            f"GPU {state.gpu.index} is close to its slowdown temperature",
            evidence={"temperature_c": latest.temperature_c, "margin_c": margin},
        )

    def _memory(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, celsius, maximum = self._limits, state.latest.memory_temperature_c, state.constants.memory_max_c
        margin = _compute_margin(celsius, maximum)
        hot = judge_band(margin, bad=limits.memory_margin_c, good=limits.memory_margin_clear_c)
        said = self._dwell.judge((state.gpu.uuid, "memory"), hot, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "memory"),
            f"the memory of GPU {state.gpu.index} is close to its maximum temperature",
            evidence={"memory_temperature_c": celsius, "memory_max_c": maximum},
        )


def _compute_margin(celsius: int | None, limit_c: int | None) -> int | None:
    """Return the margin; None if unknown. Some drivers report 0 for a missing sensor or limit."""
    return limit_c - celsius if celsius and limit_c else None

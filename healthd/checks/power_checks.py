"""GPUs that exceed their power limit, draw far less than siblings with the same work, or do not report power."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level, median_of_siblings
from healthd.findings.hysteresis import Dwell

CHECK = "power"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `power` of the thresholds. Shares are of the power limit, and of the siblings' medians."""

    limit_percent: float
    siblings_percent: float
    activity_percent: float
    tensor_percent: float
    raise_after_s: float
    clear_after_s: float


class PowerCheck:
    """Remembers how long each GPU's power has been abnormal."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return three facts per GPU."""
        facts: list[LevelFact] = []
        for state in gpus:
            siblings = [other.latest for other in gpus if other is not state]
            usual_mw = _compute_median([latest.power_mw for latest in siblings])
            usual_tensor = _compute_median([latest.tensor_active_percent for latest in siblings])
            facts += self._above(state, now) + self._unreadable(state, now)
            facts += self._below(state, now, usual_mw, usual_tensor)
        return facts

    def _above(self, state: GpuState, now: Moment) -> list[LevelFact]:
        drawn, limit = state.latest.power_mw, state.latest.power_limit_mw
        above = None if drawn is None or not limit else drawn > limit * self._limits.limit_percent / 100
        said = self._dwell.judge((state.gpu.uuid, "above_limit"), above, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "above_limit"),
            f"GPU {state.gpu.index} draws more than {self._limits.limit_percent:g} % of its power limit",
            evidence={"power_mw": drawn, "power_limit_mw": limit},
        )

    def _below(
        self, state: GpuState, now: Moment, usual_mw: float | None, usual_tensor: float | None
    ) -> list[LevelFact]:
        """Compare only with siblings that compute as much: a healthy GPU that waits for the others draws less."""
        limits, drawn, tensor = self._limits, state.latest.power_mw, state.latest.tensor_active_percent
        below = None
        if drawn is not None and tensor is not None and usual_mw is not None and usual_tensor is not None:
            works = usual_tensor >= limits.tensor_percent and tensor >= usual_tensor * limits.activity_percent / 100
            below = works and drawn < usual_mw * limits.siblings_percent / 100
        said = self._dwell.judge((state.gpu.uuid, "below_siblings"), below, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "below_siblings"),
            f"GPU {state.gpu.index} computes as much as its siblings but draws less than "
            f"{limits.siblings_percent:g} % of their power",
            evidence={"power_mw": drawn, "siblings_power_mw": usual_mw, "tensor_active_percent": tensor},
        )

    def _unreadable(self, state: GpuState, now: Moment) -> list[LevelFact]:
        """Judge missing power readings; a GPU without the sensor reports "not supported", which is no error."""
        problem = state.read.errors.get("power_mw")
        bad = True if problem is not None else False if state.read.power_mw is not None else None
        said = self._dwell.judge((state.gpu.uuid, "unreadable"), bad, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "unreadable"),
            f"the driver cannot read the power of GPU {state.gpu.index}, which it usually can",
            evidence={"error": problem[:200] if problem else None},
        )


def _compute_median(values: Sequence[float | None]) -> float | None:
    return median_of_siblings([value for value in values if value is not None])

"""Busy GPUs with a low clock and no reported throttle reason, and the one GPU of a node that heat holds down.

Power brakes and heat as such belong to the throttle check; a power cap or a set clock is intended.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, is_gpu_busy, judge_gpu_level, median_of_siblings
from healthd.findings.hysteresis import Dwell
from vocabulary.hardware.throttle_reasons import THROTTLE_REASONS

CHECK = "clocks"
_HEAT = sum(bit for bit, name in THROTTLE_REASONS.items() if name in {"sw_thermal", "hw_thermal"})
_COOL_SIBLINGS_MIN = 2  # none of which is hot: so they cannot outvote it
_MORE_POWER = 1.05  # times the siblings' median: such a GPU is hot because it has more work


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `clocks` of the thresholds. Shares are of the maximum clock, and of the siblings' median.

    `heat_percent`: likewise of the siblings, for a GPU that is held down by heat.
    """

    busy_percent: float
    max_percent: float
    siblings_percent: float
    heat_percent: float
    raise_after_s: float
    clear_after_s: float


class GpuClockCheck:
    """Remembers how long each GPU has been slow."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dwell = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per busy GPU far below its maximum or its siblings, and for the only hot one below them."""
        facts: list[LevelFact] = []
        for state in gpus:
            siblings = [clock for other in gpus if other is not state and (clock := self._clock(other)) is not None]
            usual = median_of_siblings(siblings)
            maximum = state.constants.sm_clock_max_mhz
            facts += self._judge(state, now, "low", maximum, self._limits.max_percent)
            facts += self._judge(state, now, "below_siblings", usual, self._limits.siblings_percent)
            cool = median_of_siblings(siblings, _COOL_SIBLINGS_MIN)
            facts += self._judge_only_hot(state, [other for other in gpus if other is not state], cool, now)
        return facts

    def _judge_only_hot(
        self, state: GpuState, others: Sequence[GpuState], usual_mhz: float | None, now: Moment
    ) -> list[LevelFact]:
        """Judge whether a job waits for this GPU: as busy as its siblings, hot alone, with a lower clock and no more power.

        Several hot GPUs are the node's cooling, and which of them a job waits for is unknown.
        """
        latest, clock, limits = state.latest, self._clock(state), self._limits
        drawn = [other.latest.power_mw for other in others if other.latest.power_mw is not None]
        usual_mw = median_of_siblings(drawn, _COOL_SIBLINGS_MIN)
        held: bool | None = None
        if clock and usual_mhz and latest.throttle_mask is not None:
            alone = not any((other.latest.throttle_mask or 0) & _HEAT for other in others)
            more = bool(latest.power_mw and usual_mw and latest.power_mw > usual_mw * _MORE_POWER)
            slow = clock < usual_mhz * limits.heat_percent / 100
            held = bool(latest.throttle_mask & _HEAT) and alone and slow and not more
        return judge_gpu_level(
            self._dwell.judge((state.gpu.uuid, "held_by_heat"), held, now.monotonic),
            state,
            now,
            (CHECK, "held_by_heat"),
            f"GPU {state.gpu.index} is as busy as its siblings, but heat holds its clock below {limits.heat_percent:g} % "
            "of theirs: a job on all of them waits for it",
            evidence={
                "sm_clock_mhz": clock,
                "expected_mhz": usual_mhz,
                "temperature_c": latest.temperature_c,
                "power_mw": latest.power_mw,
                "siblings_power_mw": usual_mw,
            },
        )

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

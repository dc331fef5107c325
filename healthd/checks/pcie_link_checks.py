"""GPUs whose PCIe link is narrower or slower than it can be, or replays often.

An idle GPU lowers its link's generation to save power, so that is judged only while it is busy.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, is_gpu_busy, judge_gpu_level
from healthd.findings.hysteresis import Dwell, Growth

CHECK = "pcie_link"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `pcie_link` of the thresholds."""

    busy_percent: float
    raise_after_s: float
    clear_after_s: float
    replays_in_window: float
    window_s: float


class PcieLinkCheck:
    """Remembers how long each link has been slow, and its replay rate."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._slow = Dwell(limits.raise_after_s, limits.clear_after_s)
        self._replays = Growth(limits.window_s)
        self._storm = Dwell(0.0, limits.window_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return three facts per GPU."""
        return [
            fact
            for state in gpus
            for fact in (*self._width(state, now), *self._generation(state, now), *self._replaying(state, now))
        ]

    def _width(self, state: GpuState, now: Moment) -> list[LevelFact]:
        lanes, lanes_max = state.latest.pcie_width, state.constants.pcie_width_max
        summary = f"the PCIe link of GPU {state.gpu.index} has lost lanes"
        evidence = {"lanes": lanes, "lanes_max": lanes_max}
        said = self._slow.judge((state.gpu.uuid, "width"), _is_less(lanes, lanes_max), now.monotonic)
        return judge_gpu_level(said, state, now, (CHECK, "width"), summary, evidence=evidence)

    def _generation(self, state: GpuState, now: Moment) -> list[LevelFact]:
        generation, generation_max = state.latest.pcie_generation, state.constants.pcie_generation_max
        slow = _is_less(generation, generation_max)
        if slow and not is_gpu_busy(state, self._limits.busy_percent):
            slow = None
        summary = f"the PCIe link of GPU {state.gpu.index} runs slower than it can although the GPU is busy"
        evidence = {"generation": generation, "generation_max": generation_max}
        said = self._slow.judge((state.gpu.uuid, "generation"), slow, now.monotonic)
        return judge_gpu_level(said, state, now, (CHECK, "generation"), summary, evidence=evidence)

    def _replaying(self, state: GpuState, now: Moment) -> list[LevelFact]:
        limits, key = self._limits, state.gpu.uuid
        growth = self._replays.add(key, state.read.pcie_replays, now.monotonic)
        said = None if growth is None else self._storm.judge(key, growth >= limits.replays_in_window, now.monotonic)
        return judge_gpu_level(
            said,
            state,
            now,
            (CHECK, "replays"),
            f"the PCIe link of GPU {state.gpu.index} often retransmits",
            evidence={"replays": growth, "window_s": limits.window_s},
        )


def _is_less(value: int | None, most: int | None) -> bool | None:
    """Return whether the value is too low. Some drivers report 0 for unknown."""
    return value < most if value and most else None

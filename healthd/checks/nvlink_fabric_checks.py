"""GPUs that have not joined the NVLink fabric of an NVSwitch system, or not completely.

CUDA does not start on a GPU that has not joined (fabric manager user guide). The health mask's layout is that of
nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*: bit fields, 0 where a driver does not support one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level
from healthd.findings.hysteresis import Dwell
from vocabulary.finding import Severity

CHECK = "fabric"
_COMPLETED = 3
_STATES = {1: "not started", 2: "in progress"}


class _HealthField(NamedTuple):
    """A field of the health mask: its offset, its number of values, and which of them are bad."""

    code: str
    shift: int
    values: int
    bad: range
    words: str


_TRUE, _FALSE = range(1, 2), range(2, 3)  # values of these fields for yes and no
_FIELDS = (
    _HealthField("degraded_bandwidth", 0, 4, _TRUE, "has less bandwidth than it should have"),
    _HealthField("route_recovery", 2, 4, _TRUE, "recovers a route"),
    _HealthField("route_unhealthy", 4, 4, _TRUE, "has an unhealthy route"),
    _HealthField("access_timeout", 6, 4, _TRUE, "recovers from access timeouts"),
    _HealthField("misconfigured", 8, 16, range(2, 9), "is not configured for the fabric"),
    _HealthField("manager", 14, 4, _FALSE, "has lost the fabric manager"),
)


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `fabric` of the thresholds."""

    join_s: float
    raise_after_s: float
    clear_after_s: float


class FabricCheck:
    """Remembers how long each GPU has been outside the fabric, or unhealthy inside it."""

    def __init__(self, limits: Limits) -> None:
        self._outside = Dwell(limits.join_s, 0.0)
        self._health = Dwell(limits.raise_after_s, limits.clear_after_s)

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return facts for each GPU that has a fabric. A single GPU needs none, as in many virtual machines."""
        return [
            fact
            for state in gpus
            for fact in (*self._joined(state, now, alone=len(gpus) == 1), *self._healthy(state, now))
        ]

    def _joined(self, state: GpuState, now: Moment, *, alone: bool) -> list[LevelFact]:
        fabric, status = state.latest.fabric_state, state.latest.fabric_status
        joined = None if not fabric else fabric == _COMPLETED
        absent = None if joined is None or (alone and not joined) else not joined
        refused = status != 0 if joined and status is not None else None
        outside = judge_gpu_level(
            self._outside.judge((state.gpu.uuid, "state"), absent, now.monotonic),
            state,
            now,
            (CHECK, "state"),
            f"GPU {state.gpu.index} has not joined the NVLink fabric: CUDA does not start on it",
            severity=Severity.ERROR,
            evidence={"fabric_state": fabric, "state": _STATES.get(fabric or 0)},
        )
        failed = judge_gpu_level(
            self._outside.judge((state.gpu.uuid, "status"), refused, now.monotonic),
            state,
            now,
            (CHECK, "status"),
            f"GPU {state.gpu.index} could not join the NVLink fabric: CUDA does not start on it",
            severity=Severity.ERROR,
            evidence={"nvml_return": status},
        )
        return outside + failed

    def _healthy(self, state: GpuState, now: Moment) -> list[LevelFact]:
        mask = state.latest.fabric_health_mask
        facts: list[LevelFact] = []
        for code, shift, values, bad, words in _FIELDS:
            value = None if mask is None else (mask >> shift) % values
            unwell = value in bad if value else None  # 0: not supported
            summary = f"in the NVLink fabric, GPU {state.gpu.index} {words}"
            holds = self._health.judge((state.gpu.uuid, code), unwell, now.monotonic)
            evidence = {"health_mask": mask, "value": value}
            facts += judge_gpu_level(holds, state, now, (CHECK, code), summary, evidence=evidence)
        return facts

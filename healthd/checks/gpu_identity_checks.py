"""GPUs of one kind that differ or are not set up for a data centre, as after a careless replacement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import SIBLINGS_MIN, GpuState, judge_gpu_level

CHECK = "gpu_identity"
_ALIKE = {"vbios": "VBIOS", "inforom": "InfoROM image", "part_number": "board part number"}


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `gpu_identity` of the thresholds."""

    ecc_expected: float
    persistence_expected: float


class GpuIdentityCheck:
    """Stateless."""

    def __init__(self, limits: Limits) -> None:
        self._ecc_expected = limits.ecc_expected > 0
        self._persistence_expected = limits.persistence_expected > 0

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return a fact per GPU that differs from nearly all siblings, or lacks ECC or persistence mode."""
        facts: list[LevelFact] = []
        for state in gpus:
            for field, words in _ALIKE.items():
                facts += _judge_odd_field(state, [other for other in gpus if other is not state], field, words, now)
            if self._ecc_expected:
                facts += _judge_missing_ecc(state, now)
            if self._persistence_expected:
                facts += _judge_missing_persistence(state, now)
        return facts


def _judge_odd_field(
    state: GpuState, siblings: Sequence[GpuState], field: str, words: str, now: Moment
) -> list[LevelFact]:
    own = getattr(state.constants, field)
    others = Counter(value for sibling in siblings if (value := getattr(sibling.constants, field)))
    usual, count = others.most_common(1)[0] if others else ("", 0)
    known = bool(own) and others.total() >= SIBLINGS_MIN
    if own != usual and 2 * count <= others.total():
        known = False  # all differ, so none is the reference
    return judge_gpu_level(
        own != usual if known else None,
        state,
        now,
        (CHECK, field),
        f"GPU {state.gpu.index} has a different {words} than its siblings",
        evidence={field: own[:100], "siblings": usual[:100]},
    )


def _judge_missing_ecc(state: GpuState, now: Moment) -> list[LevelFact]:
    enabled = state.constants.ecc_enabled
    summary = f"ECC is off on GPU {state.gpu.index}: memory errors go undetected"
    return judge_gpu_level(None if enabled is None else not enabled, state, now, (CHECK, "ecc_off"), summary)


def _judge_missing_persistence(state: GpuState, now: Moment) -> list[LevelFact]:
    enabled = state.latest.persistence
    summary = (
        f"persistence mode is off on GPU {state.gpu.index}: the driver unloads when the GPU is idle, so each job starts"
        " seconds later and counters reset; start nvidia-persistenced"
    )
    return judge_gpu_level(None if enabled is None else not enabled, state, now, (CHECK, "persistence_off"), summary)

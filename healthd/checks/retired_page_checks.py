"""Memory pages taken out of use: what GPUs before Ampere do instead of remapping rows."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment
from healthd.findings.gpu_state import GpuState, judge_gpu_level

CHECK = "retired_pages"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `retired_pages` of the thresholds."""

    pages: float


class RetiredPagesCheck:
    """Stateless: the driver's counts never fall."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def judge(self, gpus: Sequence[GpuState], now: Moment) -> list[LevelFact]:
        """Return facts for pages pending retirement, and for a nearly full retirement table."""
        return [fact for state in gpus for fact in self._judge(state, now)]

    def _judge(self, state: GpuState, now: Moment) -> list[LevelFact]:
        latest, limit = state.latest, self._limits.pages
        counts = (latest.retired_pages_corrected, latest.retired_pages_uncorrected)
        known = sum(count or 0 for count in counts)
        many = True if known >= limit else None if None in counts else False
        evidence = {"pages_corrected": counts[0], "pages_uncorrected": counts[1]}
        pending = judge_gpu_level(
            latest.retirement_pending,
            state,
            now,
            (CHECK, "pending"),
            f"GPU {state.gpu.index} has a faulty memory page that the next reset retires",
            evidence=evidence,
        )
        full = judge_gpu_level(
            many,
            state,
            now,
            (CHECK, "many"),
            f"GPU {state.gpu.index} has at least {limit:g} retired memory pages of at most 64: replace it",
            evidence=evidence,
        )
        return pending + full

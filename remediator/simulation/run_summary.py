"""Several seeds of a policy as means with 95 % intervals."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np

from remediator.simulation.simulation_run import SimulationResult

# Student's t, two-sided 95 %, for 1, 2, … degrees of freedom; beyond the table the normal value is close enough.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
      2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045)  # fmt: skip


class Estimate(msgspec.Struct, frozen=True):
    """A mean and half the width of its interval; None for a single value."""

    mean: float
    half_width: float | None

    def text(self, factor: float = 1.0, unit: str = "", digits: int = 1) -> str:
        """Format for people, times `factor`."""
        mean = f"{self.mean * factor:.{digits}f}"
        return mean + ("" if self.half_width is None else f" ± {self.half_width * factor:.{digits}f}") + unit


class PolicySummary(msgspec.Struct, frozen=True, kw_only=True):
    """One policy over all seeds; the fields are those of `SimulationResult`."""

    policy: str
    goodput: Estimate
    effective_time: Estimate
    restarts_per_day: Estimate
    healthy_node_days_lost: Estimate
    wrong_actions: Estimate
    isolations: Estimate
    by_people: Estimate


_FIELDS = tuple(name for name in PolicySummary.__struct_fields__ if name != "policy")


def estimate_mean(values: Iterable[float]) -> Estimate:
    """Estimate the mean of one or more values."""
    given = np.array(list(values), dtype=np.float64)
    if given.size < 2:
        return Estimate(float(given.mean()), None)
    t = _T[given.size - 2] if given.size - 2 < len(_T) else 1.96
    return Estimate(float(given.mean()), float(t * given.std(ddof=1) / np.sqrt(given.size)))


def summarize_policies(measured: Iterable[SimulationResult]) -> list[PolicySummary]:
    """Return one summary per policy, in order of first appearance."""
    runs: dict[str, list[SimulationResult]] = {}
    for one in measured:
        runs.setdefault(one.policy, []).append(one)
    return [
        PolicySummary(policy=name, **{field: estimate_mean(getattr(one, field) for one in ones) for field in _FIELDS})
        for name, ones in runs.items()
    ]

"""The optimal time between checkpoints, and the cost of any other. Pure; all times in seconds.

The model: failures come at a constant rate and return the job to its last complete checkpoint. `stall_s` is the time
for which a save stops training (C in the formulas), `mtbf_s` the job's mean time between failures (F), an interval the
training between two saves. `docs/explanation/checkpoint-interval.md` derives the formulas.
"""

from __future__ import annotations

from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple

EXPONENT_MAX = 500.0  # beyond it a segment practically never ends, and exp would soon overflow


class CheckpointWaste(NamedTuple):
    """The parts of the job's time that train something new, or are lost: shares that add up to 1."""

    useful: float
    checkpoint: float
    rework: float  # training lost to a failure
    restart: float

    @property
    def total(self) -> float:
        """The share that trains nothing new."""
        return self.checkpoint + self.rework + self.restart


def young_daly_s(stall_s: float, mtbf_s: float) -> float:
    """Return the first-order optimum, sqrt(2 C F).

    Raises:
        ValueError: a time is negative or not a number.
    """
    return sqrt(2 * _require_duration("stall_s", stall_s) * _require_positive("mtbf_s", mtbf_s))


def daly_s(stall_s: float, mtbf_s: float) -> float:
    """Return Daly's higher-order optimum; F itself if a save costs twice that or more.

    Raises:
        ValueError: a time is negative or not a number.
    """
    first_order_s = young_daly_s(stall_s, mtbf_s)
    if stall_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = stall_s / (2 * mtbf_s)
    return first_order_s * (1 + sqrt(ratio) / 3 + ratio / 9) - stall_s


def estimate_waste(
    interval_s: float, stall_s: float, mtbf_s: float, restart_s: float = 0.0, write_s: float = 0.0
) -> CheckpointWaste:
    """Return the parts of the job's time that are lost if a save begins after each `interval_s` of training.

    `restart_s` is the time from a failure until training resumes, during which nodes also fail. `write_s` is how long a
    save is still being written after training resumes: a failure within it falls back one checkpoint further.

    Raises:
        ValueError: an interval or MTBF is not positive, or another time is negative or not a number.
    """
    interval_s, mtbf_s = _require_positive("interval_s", interval_s), _require_positive("mtbf_s", mtbf_s)
    stall_s, write_s = _require_duration("stall_s", stall_s), _require_duration("write_s", write_s)
    segment, restarting = (interval_s + stall_s) / mtbf_s, _require_duration("restart_s", restart_s) / mtbf_s
    if segment + restarting > EXPONENT_MAX:
        return CheckpointWaste(0.0, 0.0, 1.0, 0.0)
    failures = expm1(segment)  # before one segment succeeds
    rework_s = failures * (mtbf_s + write_s) - (interval_s + stall_s)
    restart_s = failures * mtbf_s * expm1(restarting)
    whole_s = failures * (mtbf_s * exp(restarting) + write_s)
    return CheckpointWaste(interval_s / whole_s, stall_s / whole_s, max(0.0, rework_s / whole_s), restart_s / whole_s)


def _require_positive(name: str, value: float) -> float:
    if not isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}; it must be above 0")
    return value


def _require_duration(name: str, value: float) -> float:
    if not isfinite(value) or value < 0:
        raise ValueError(f"{name} is {value!r}; it must be 0 or more")
    return value

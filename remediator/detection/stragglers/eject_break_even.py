"""Break-even of ejecting a straggler: the expected cost of keeping it against that of ejecting it. Pure.

Durations are published: 10 minutes on average on small jobs, 72 on those of 512 GPUs and more (Greyhound). A slowdown
that has lasted will last: with exponential durations of unknown rate (a Lomax prior with shape 2), the expected
remainder is that average plus the time it has lasted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

BIG_JOB_GPUS = 512
MEAN_SMALL_S, MEAN_BIG_S = 600.0, 4320.0
NOW, CHECKPOINT, WATCH = 0.20, 0.10, 0.05
SUSTAINED_S = 600.0
ROUNDING = 0.005  # a slowdown of 19.6 % counts as 20 %


class EjectUrgency(str, Enum):
    """How soon to act."""

    NOTHING = "nothing"
    WATCH = "watch"
    NEXT_CHECKPOINT = "next_checkpoint"
    NOW = "now"


@dataclass(frozen=True)
class EjectArithmetic:
    """Expected job seconds lost by keeping and by ejecting, and the duration at which they are equal."""

    stay_s: float
    leave_s: float
    rest_s: float
    break_even_s: float

    @property
    def worth(self) -> bool:
        """Whether ejecting is cheaper."""
        return self.stay_s > self.leave_s


def compute_eject_break_even(slowdown: float, cost_s: float, lasted_s: float, gpus: int) -> EjectArithmetic:
    """Compute the break-even of an eject.

    Args:
        slowdown: 0.2 for steps that take a fifth longer; zero or less is none.
        cost_s: of ejecting, in seconds of the whole job: checkpoint, restart, lost work.
        lasted_s: how long it has been slow.
        gpus: of the job.
    """
    slowdown, cost_s = max(0.0, _finite_or_zero(slowdown)), max(0.0, _finite_or_zero(cost_s))
    rest_s = (MEAN_BIG_S if gpus >= BIG_JOB_GPUS else MEAN_SMALL_S) + max(0.0, _finite_or_zero(lasted_s))
    lost = slowdown / (1 + slowdown)
    return EjectArithmetic(rest_s * lost, cost_s, rest_s, cost_s / lost if lost else float("inf"))


def eject_urgency(slowdown: float, lasted_s: float, *, stalled: bool = False) -> EjectUrgency:
    """Return how urgent a slowdown is, before confirmation and break-even."""
    slowdown = _finite_or_zero(slowdown) + ROUNDING
    if stalled or slowdown >= NOW:
        return EjectUrgency.NOW
    if slowdown >= CHECKPOINT and _finite_or_zero(lasted_s) >= SUSTAINED_S:
        return EjectUrgency.NEXT_CHECKPOINT
    return EjectUrgency.WATCH if slowdown >= WATCH else EjectUrgency.NOTHING


def _finite_or_zero(value: float) -> float:
    return value if value == value and abs(value) != float("inf") else 0.0  # noqa: PLR0124 - NaN differs from itself

"""Whether to act on a straggler: what staying is expected to cost against what leaving costs. Pure.

How long a slowdown lasts is taken from what was published of such faults: 10 minutes on average on small jobs, 72 on
those of 512 GPUs and more (Greyhound). A slowdown that has lasted will last: with durations that are exponential, but
of a rate nobody knows (a Lomax prior with shape 2), the expected rest is that average plus the time it has lasted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

BIG_JOB_GPUS = 512
MEAN_SMALL_S, MEAN_BIG_S = 600.0, 4320.0
NOW, CHECKPOINT, WATCH = 0.20, 0.10, 0.05
SUSTAINED_S = 600.0
ROUNDING = 0.005  # a slowdown of 19.6 % is "20 %" to everyone


class Level(str, Enum):
    """How soon to act."""

    NOTHING = "nothing"
    WATCH = "watch"
    NEXT_CHECKPOINT = "next_checkpoint"
    NOW = "now"


@dataclass(frozen=True)
class Arithmetic:
    """Expected seconds of the job that staying loses and leaving costs, and the persistence at which they are equal."""

    stay_s: float
    leave_s: float
    rest_s: float
    break_even_s: float

    @property
    def worth(self) -> bool:
        """Whether leaving is the cheaper of the two."""
        return self.stay_s > self.leave_s


def worth_ejecting(slowdown: float, cost_s: float, lasted_s: float, gpus: int) -> Arithmetic:
    """The arithmetic of an eject.

    Args:
        slowdown: 0.2 for steps that take a fifth longer; what is not positive is none.
        cost_s: of leaving, in seconds of the whole job: save, restart, lost work.
        lasted_s: how long it has been slow.
        gpus: of the job.
    """
    slowdown, cost_s = max(0.0, _number(slowdown)), max(0.0, _number(cost_s))
    rest_s = (MEAN_BIG_S if gpus >= BIG_JOB_GPUS else MEAN_SMALL_S) + max(0.0, _number(lasted_s))
    lost = slowdown / (1 + slowdown)
    return Arithmetic(rest_s * lost, cost_s, rest_s, cost_s / lost if lost else float("inf"))


def level(slowdown: float, lasted_s: float, *, stalled: bool = False) -> Level:
    """How soon a slowdown asks for something, before it is confirmed and before its cost is reckoned."""
    slowdown = _number(slowdown) + ROUNDING
    if stalled or slowdown >= NOW:
        return Level.NOW
    if slowdown >= CHECKPOINT and _number(lasted_s) >= SUSTAINED_S:
        return Level.NEXT_CHECKPOINT
    return Level.WATCH if slowdown >= WATCH else Level.NOTHING


def _number(value: float) -> float:
    return value if value == value and abs(value) != float("inf") else 0.0  # noqa: PLR0124 - NaN differs from itself

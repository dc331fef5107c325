"""Records of a straggler verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SlowdownKind(str, Enum):
    """Where the time goes. The first four and `host-io` may name culprits, the others never do."""

    NODE = "node"
    GPU = "gpu"
    LINK = "link"
    HOST_IO = "host-io"
    STAGE = "stage"
    DATA = "data"
    GC = "gc"
    APPLICATION = "application"
    GLOBAL = "global"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Culprit:
    """A rank that slows the others down; `slowdown` 0.2 means a fifth more time than its peers."""

    rank: int
    node: str | None
    slowdown: float


@dataclass(frozen=True)
class VerdictReason:
    """One number that supports the verdict, and the rank it is about, if any."""

    name: str
    value: float
    rank: int | None = None


@dataclass(frozen=True)
class StragglerVerdict:
    """The answer.

    Attributes:
        verdict: its kind.
        culprits: slowest first; empty if no rank is at fault or it cannot be decided.
        first_step: the step at which it began, None without a slowdown.
        confidence: 0 to 1.
        reasons: numbers.
    """

    verdict: SlowdownKind
    culprits: tuple[Culprit, ...]
    first_step: int | None
    confidence: float
    reasons: tuple[VerdictReason, ...]


def no_culprit_verdict(confidence: float, *reasons: VerdictReason) -> StragglerVerdict:
    """Return a verdict without a culprit, with what was seen."""
    return StragglerVerdict(SlowdownKind.NOBODY, (), None, round(confidence, 3), reasons)

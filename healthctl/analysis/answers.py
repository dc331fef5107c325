"""What the analyses answer: printed as tables or JSON, and drawn."""

from __future__ import annotations

import msgspec


class SuspectNode(msgspec.Struct, frozen=True):
    """One node; `evidence` are the numbers that the probability rests on."""

    node: str
    probability: float
    action: str
    evidence: dict[str, float]


class Culprit(msgspec.Struct, frozen=True):
    """`slowdown` 0.2: a fifth more own time than its peers."""

    rank: int
    node: str | None
    slowdown: float


class Reason(msgspec.Struct, frozen=True):
    """One number the verdict rests on; `rank` where it is about one."""

    name: str
    value: float
    rank: int | None


class JobVerdict(msgspec.Struct, frozen=True):
    """The answer on one job."""

    job: str
    verdict: str
    culprits: tuple[Culprit, ...]
    first_step: int | None
    confidence: float
    reasons: tuple[Reason, ...]

"""Result types of the analyses, printed as tables or JSON, or drawn as charts."""

from __future__ import annotations

import msgspec


class SuspectNode(msgspec.Struct, frozen=True):
    """One node; `evidence` holds the numbers behind the probability."""

    node: str
    probability: float
    action: str
    evidence: dict[str, float]


class Culprit(msgspec.Struct, frozen=True):
    """`slowdown` 0.2: the rank's own computation takes 20 % longer than that of its peers."""

    rank: int
    node: str | None
    slowdown: float


class Reason(msgspec.Struct, frozen=True):
    """One number behind the verdict; `rank` is set when the number belongs to one rank."""

    name: str
    value: float
    rank: int | None


class JobVerdict(msgspec.Struct, frozen=True):
    """The verdict on one job."""

    job: str
    verdict: str
    culprits: tuple[Culprit, ...]
    first_step: int | None
    confidence: float
    reasons: tuple[Reason, ...]

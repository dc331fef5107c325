"""The local verdict on a node. Unknown is a value of its own, and it is not good."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from vocabulary.finding import Finding, Severity


class Health(str, enum.Enum):
    """A node's self-reported health."""

    UNKNOWN = "unknown"  # nothing is known, or a needed source is silent
    HEALTHY = "healthy"
    DEGRADED = "degraded"  # works; needs watching
    UNHEALTHY = "unhealthy"  # takes no new work


class Verdict(msgspec.Struct, frozen=True):
    """The answer to `GET /v1/verdict`: may work be placed here? `fit` only if known to work and not condemned.

    `at` is UTC seconds. `age_s` is the verdict's age when it was answered, by a monotonic clock.
    """

    node: str
    health: Health
    fit: bool
    condemned: bool
    reasons: tuple[str, ...]
    at: float
    age_s: float = 0.0


_FROM_SEVERITY = {
    Severity.INFO: Health.HEALTHY,
    Severity.WARNING: Health.DEGRADED,
    Severity.UNCLASSIFIED: Health.DEGRADED,
    Severity.ERROR: Health.UNHEALTHY,
    Severity.FATAL: Health.UNHEALTHY,
}


def health_of(findings: Iterable[Finding], *, sources_known: bool) -> Health:
    """Combine active findings into one value.

    A bad finding outweighs silence (the node is known to be bad); silence outweighs the absence of findings (it is not
    known to be good).
    """
    worst = max((f.severity for f in findings if f.active), key=lambda s: s.rank, default=Severity.INFO)
    health = _FROM_SEVERITY[worst]
    if health is Health.UNHEALTHY or sources_known:
        return health
    return Health.UNKNOWN

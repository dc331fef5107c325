"""How many nodes we may take out of service: in level (at once) and in rate (per hour).

Un-isolating is never asked about here, so it can never be blocked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from heapq import nsmallest

import msgspec

from remediator.decide.guards import Guarded

HOUR_S = 3600.0
NAMED_MAX = 10  # nodes told by name in a reason


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for the cluster. The level is the larger of a count and a fraction, so a small cluster has at least one."""

    isolated_max: int = 1
    isolated_fraction_max: float = 0.02
    isolations_per_hour_max: int = 6


def level_max(budget: Budget, nodes_total: int) -> int:
    """Most nodes we may hold at once in a cluster of `nodes_total`."""
    return max(budget.isolated_max, int(nodes_total * budget.isolated_fraction_max))


def isolation_guards(
    budget: Budget, held: Collection[str], nodes_total: int, isolated_at: Sequence[float], now: float
) -> tuple[Guarded, ...]:
    """May one more node be isolated now?

    Args:
        budget: the limits.
        held: the nodes that we hold now.
        nodes_total: how many nodes are known.
        isolated_at: times of our isolations, in order, at least those of the last hour.
        now: UTC seconds.
    """
    most = level_max(budget, nodes_total)
    named = nsmallest(NAMED_MAX, held)
    recent = len(isolated_at) - bisect_right(isolated_at, now - HOUR_S)
    return (
        Guarded(
            "level",
            len(held) < most,
            f"{len(held)} of at most {most} nodes isolated by us ({', '.join(named) or 'none'})",
        ),
        Guarded(
            "rate",
            recent < budget.isolations_per_hour_max,
            f"{recent} of at most {budget.isolations_per_hour_max} isolations in the last hour",
        ),
    )

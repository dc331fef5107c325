"""How many nodes we may take out of service: in level (at once) and in rate (per hour).

Un-isolating is never asked about here, so it can never be blocked.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remediator.decide.guards import Guarded
from remediator.model.records import NodeRecord

HOUR_S = 3600.0


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits for the cluster. The level is the larger of a count and a fraction, so a small cluster has at least one."""

    isolated_max: int = 1
    isolated_fraction_max: float = 0.02
    isolations_per_hour_max: int = 6


def level_max(budget: Budget, nodes_total: int) -> int:
    """Most nodes we may hold at once in a cluster of `nodes_total`."""
    return max(budget.isolated_max, int(nodes_total * budget.isolated_fraction_max))


def isolation_guards(
    budget: Budget, nodes: Iterable[NodeRecord], isolated_at: Iterable[float], now: float
) -> tuple[Guarded, ...]:
    """May one more node be isolated now?

    Args:
        budget: the limits.
        nodes: every node known.
        isolated_at: times of our isolations, any order, at least those of the last hour.
        now: UTC seconds.
    """
    all_nodes = list(nodes)
    held = sorted(n.node for n in all_nodes if n.held)
    most = level_max(budget, len(all_nodes))
    recent = sum(1 for at in isolated_at if now - at < HOUR_S)
    return (
        Guarded(
            "level",
            len(held) < most,
            f"{len(held)} of at most {most} nodes isolated by us ({', '.join(held) or 'none'})",
        ),
        Guarded(
            "rate",
            recent < budget.isolations_per_hour_max,
            f"{recent} of at most {budget.isolations_per_hour_max} isolations in the last hour",
        ),
    )

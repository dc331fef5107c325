"""The budget's guards with their figures as they are now, for people who ask before anything is to be isolated. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remediator.decide.breaker import trip_level
from remediator.decide.budget import HOUR_S, Budget, level_max, rate_max
from vocabulary.counts import counted
from vocabulary.spans import period


def limits(
    budget: Budget, nodes_total: int, held: int, isolated_at: Sequence[float], failed: Mapping[str, int], now: float
) -> tuple[str, ...]:
    """Every limit that holds for the whole cluster, and how far it is used.

    Args:
        budget: the limits.
        nodes_total: nodes in the cluster.
        held: of them isolated by us.
        isolated_at: when we isolated nodes, oldest first, UTC seconds.
        failed: deeds that failed one after another, by verb.
        now: UTC seconds.
    """
    recent = sum(at > now - HOUR_S for at in isolated_at)
    words = [
        f"level: {held} of at most {counted(level_max(budget, nodes_total), 'node')} isolated by us, of {nodes_total} in the cluster",
        f"rate: {recent} of at most {counted(rate_max(budget, nodes_total), 'isolation')} in the last hour",
    ]
    if budget.isolation_gap_s:
        ago = (
            f"the last was {period(round(max(0.0, now - isolated_at[-1])))} ago"
            if isolated_at
            else "there was none lately"
        )
        words.append(f"gap: at least {period(budget.isolation_gap_s)} lie between two isolations; {ago}")
    words.append(f"breaker: opens at {counted(trip_level(budget, nodes_total), 'node')} isolated by us; now {held}")
    for verb, times in sorted(failed.items()) or [("deeds", 0)]:
        words.append(
            f"failures: {verb} failed for {counted(times, 'incident')} in a row; the breaker opens at {budget.breaker_failures}"
        )
    return tuple(words)

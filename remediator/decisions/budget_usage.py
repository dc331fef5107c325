"""The budget's guards with their current figures, for operators who ask before an isolation. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from remediator.decisions.circuit_breaker import breaker_trip_level
from remediator.decisions.isolation_budget import HOUR_S, IsolationBudget, level_max, rate_max
from vocabulary.text.duration_format import format_period
from vocabulary.text.plurals import format_count


def describe_budget_limits(
    budget: IsolationBudget,
    nodes_total: int,
    held: int,
    isolated_at: Sequence[float],
    failed: Mapping[str, int],
    now: float,
) -> tuple[str, ...]:
    """Return every limit for the whole cluster, and how far it is used.

    Args:
        budget: the limits.
        nodes_total: nodes in the cluster.
        held: nodes isolated by the controller.
        isolated_at: when we isolated nodes, oldest first, UTC seconds.
        failed: failed actions in a row, by verb.
        now: UTC seconds.
    """
    recent = sum(at > now - HOUR_S for at in isolated_at)
    words = [
        f"level: {held} of at most {format_count(level_max(budget, nodes_total), 'node')} isolated, of {nodes_total} in the cluster",
        f"rate: {recent} of at most {format_count(rate_max(budget, nodes_total), 'isolation')} in the last hour",
    ]
    if budget.isolation_gap_s:
        ago = (
            f"the last was {format_period(round(max(0.0, now - isolated_at[-1])))} ago"
            if isolated_at
            else "none recently"
        )
        words.append(f"gap: at least {format_period(budget.isolation_gap_s)} between two isolations; {ago}")
    words.append(
        f"breaker: opens at {format_count(breaker_trip_level(budget, nodes_total), 'node')} isolated; now {held}"
    )
    for verb, times in sorted(failed.items()) or [("actions", 0)]:
        words.append(
            f"failures: {verb} failed for {format_count(times, 'incident')} in a row; the breaker opens at {budget.breaker_failures}"
        )
    return tuple(words)

"""The breaker: when too much is out or too much failed, nothing more is isolated until a person says so.

It is open exactly as long as there is an open incident about it, so it survives whatever that survives.
"""

from __future__ import annotations

from math import ceil

from remediator.decide.budget import Budget
from remediator.decide.wide import open_wide
from remediator.state import BREAKER, ClusterState

RULE = "breaker"


def trip_level(budget: Budget, nodes_total: int) -> int:
    """How many nodes isolated by us open it, of `nodes_total`."""
    return max(budget.breaker_nodes_min, ceil(nodes_total * budget.breaker_fraction))


def after_isolation(state: ClusterState, budget: Budget, now: float) -> None:
    """A node was isolated just now: was it one too many?"""
    held, most = len(state.held), trip_level(budget, len(state.nodes))
    if held >= most:
        _open(state, f"{held} of {len(state.nodes)} nodes are isolated by us; the breaker opens at {most}", now)


def after_failures(state: ClusterState, budget: Budget, now: float) -> None:
    """Did too many deeds fail one after another?"""
    for verb, failed in state.streak.failed.items():
        if len(failed) >= budget.breaker_failures:
            text = f"{verb} failed for {len(failed)} incidents in a row ({', '.join(sorted(set(failed.values())))})"
            _open(state, f"{text}; the breaker opens at {budget.breaker_failures}", now)
            return


def _open(state: ClusterState, why: str, now: float) -> None:
    if state.incident_of(BREAKER) is None:
        incident = open_wide(state, BREAKER, RULE, f"nothing more is isolated: {why}", state.held, now)
        state.note(now, "breaker_opened", why, incident=incident)

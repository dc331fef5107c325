"""The breaker: when too much is out or too much failed, nothing more is isolated until a person says so.

It is open exactly as long as there is an open incident about it, so it survives whatever that survives.
"""

from __future__ import annotations

from math import ceil

from remediator.decide.budget import Budget
from remediator.decide.wide import hold_back, open_wide
from remediator.model.records import BREAKER
from remediator.model.rules import NodeState
from remediator.state import ClusterState
from vocabulary.counts import counted

RULE = "breaker"


def trip_level(budget: Budget, nodes_total: int) -> int:
    """How many nodes isolated by us open it, of `nodes_total`; one more of those isolated and wanted out."""
    return max(budget.breaker_nodes_min, ceil(nodes_total * budget.breaker_fraction))


def after_isolation(state: ClusterState, budget: Budget, now: float) -> None:
    """A node was isolated just now: was it one too many?"""
    held, known = len(state.held), len(state.index.in_cluster)
    most = trip_level(budget, known)
    if held >= most:
        _open(state, f"{held} of {counted(known, 'node')} are isolated by us; the breaker opens at {most}", now)
    hold_back(state, budget.common_cause_nodes, now)


def after_suspicion(state: ClusterState, budget: Budget, now: float) -> None:
    """A rule wants one more node out. What the level holds back counts as well: isolated nodes alone stay below it."""
    known = len(state.index.in_cluster)
    most = trip_level(budget, known)
    if len(state.held) + len(state.incidents) <= most or state.incident_of(BREAKER) is not None:
        return
    wanted = len(_wanted(state))
    if len(state.held) + wanted > most:
        text = f"{len(state.held)} of {counted(known, 'node')} are isolated by us and {wanted} more ought to be"
        _open(state, f"{text}; the breaker opens above {most}", now)


def _wanted(state: ClusterState) -> list[str]:
    """A drill is none, what an operator holds is theirs, and what a shared cause explains is told by that."""
    explained = {name for wide in state.wide() if wide.node != BREAKER for name in wide.members}
    asked = (i.node for i in state.incidents.values() if i.suspected and not i.injected and not i.wide)
    unexplained = [name for name in asked if name not in explained and name not in state.held]
    return [name for name in unexplained if state.nodes[name].state is not NodeState.OPERATOR_HELD]


def after_failures(state: ClusterState, budget: Budget, now: float) -> None:
    """Did too many deeds fail one after another?"""
    for verb, failed in state.streak.failed.items():
        if len(failed) >= budget.breaker_failures:
            text = f"{verb} failed for {counted(len(failed), 'incident')} in a row ({', '.join(sorted(set(failed.values())))})"
            _open(state, f"{text}; the breaker opens at {budget.breaker_failures}", now)
            return


def _open(state: ClusterState, why: str, now: float) -> None:
    if state.incident_of(BREAKER) is None:
        incident = open_wide(state, BREAKER, RULE, f"nothing more is isolated: {why}", state.held, now)
        state.note(now, "breaker_opened", why, incident=incident)

"""The breaker: when too much is out or too much failed, nothing more is isolated until a person says so.

It is open exactly as long as there is an open incident about it, so it survives whatever that survives.
"""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from remediator.decide.budget import Budget
from remediator.decide.wide import has_doubled, hold_back, open_wide, say
from remediator.model.records import BREAKER, CAUSE, EXPLAINING
from remediator.model.rules import NodeState
from remediator.recent import EVERYWHERE
from remediator.state import ClusterState
from vocabulary.counts import counted

RULE = "breaker"
LOOKED_BACK_S = 600.0  # what failed so shortly before it opened belongs to the same storm
_BY_NOW = ". By now "
_WAY_OUT = "Only a person closes it: healthctl breaker reset 'WHY'"


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
    explained = {name for wide in state.wide() if wide.rule in EXPLAINING for name in wide.members}
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


def grow(state: ClusterState, now: float) -> None:
    """An open breaker says how many nodes have failed by now, and people hear it as that doubles.

    Where a shared cause is open, that one says so.
    """
    incident = state.incident_of(BREAKER)
    if incident is None:
        return
    since = incident.opened_at - LOOKED_BACK_S
    fleet = state.suspects.count(EVERYWHERE, since, drills=incident.injected)
    if fleet > incident.fleet:
        known = len(state.index.in_cluster)
        title = f"{incident.title.partition(_BY_NOW)[0]}{_BY_NOW}{fleet} of {counted(known, 'node')} have failed"
        incident = replace(incident, fleet=fleet, title=title)
        state.put_incident(incident)
    if has_doubled(incident, now) and not any(wide.rule == CAUSE for wide in state.wide()):
        say(state, incident, RULE, _WAY_OUT, now)


def _open(state: ClusterState, why: str, now: float) -> None:
    if state.incident_of(BREAKER) is None:
        opened = open_wide(state, BREAKER, RULE, f"nothing more is isolated: {why}", state.held, now)
        fleet = state.suspects.count(EVERYWHERE, now - LOOKED_BACK_S, drills=opened.injected)
        incident = say(state, replace(opened, fleet=fleet), RULE, _WAY_OUT, now)
        state.note(now, "breaker_opened", why, incident=incident)

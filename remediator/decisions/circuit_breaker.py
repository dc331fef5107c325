"""The circuit breaker: after too many isolations or failures, nothing more is isolated until an operator resets it.

It is open exactly as long as its incident is open, so it survives restarts.
"""

from __future__ import annotations

from math import ceil

from msgspec.structs import replace

from remediator.decisions.group_incidents import (
    announce_group_incident,
    has_doubled,
    mark_slow_cause_blocking,
    open_group_incident,
)
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import BREAKER, CAUSE, EXPLAINING
from remediator.model.rule_conditions import NodeState
from remediator.state.cluster_state import ClusterState
from remediator.state.recent_failures import EVERYWHERE
from vocabulary.text.plurals import format_count

RULE = "breaker"
LOOKED_BACK_S = 600.0  # failures shortly before it opened belong to the same storm
_BY_NOW = ". By now "
_WAY_OUT = "Only an operator can close it: healthctl breaker reset 'WHY'"


def breaker_trip_level(budget: IsolationBudget, nodes_total: int) -> int:
    """Return how many isolated nodes, of `nodes_total`, open it.

    One more counts isolated nodes and those a rule wants out.
    """
    return max(budget.breaker_nodes_min, ceil(nodes_total * budget.breaker_fraction))


def check_isolation_count(state: ClusterState, budget: IsolationBudget, now: float) -> None:
    """A node was isolated: open the breaker if it was one too many."""
    held, known = len(state.held), len(state.index.in_cluster)
    most = breaker_trip_level(budget, known)
    if held >= most:
        _open_breaker_incident(
            state, f"{held} of {format_count(known, 'node')} are isolated; the breaker opens at {most}", now
        )
    mark_slow_cause_blocking(state, budget.common_cause_nodes, now)


def check_suspect_count(state: ClusterState, budget: IsolationBudget, now: float) -> None:
    """A rule wants one more node out. Nodes held back count as well: isolated ones alone stay below the level."""
    known = len(state.index.in_cluster)
    most = breaker_trip_level(budget, known)
    if len(state.held) + len(state.incidents) <= most or state.incident_of(BREAKER) is not None:
        return
    wanted = len(_nodes_wanted_out(state))
    if len(state.held) + wanted > most:
        text = f"{len(state.held)} of {format_count(known, 'node')} are isolated and {wanted} more need isolation"
        _open_breaker_incident(state, f"{text}; the breaker opens above {most}", now)


def _nodes_wanted_out(state: ClusterState) -> list[str]:
    """Return these nodes, without drills, operator-held nodes, and those that a common cause explains."""
    explained = {name for wide in state.wide() if wide.rule in EXPLAINING for name in wide.members}
    asked = (i.node for i in state.incidents.values() if i.suspected and not i.injected and not i.wide)
    unexplained = [name for name in asked if name not in explained and name not in state.held]
    return [name for name in unexplained if state.nodes[name].state is not NodeState.OPERATOR_HELD]


def check_failure_streak(state: ClusterState, budget: IsolationBudget, now: float) -> None:
    """Open the breaker if too many actions failed in a row."""
    for verb, failed in state.streak.failed.items():
        if len(failed) >= budget.breaker_failures:
            text = f"{verb} failed for {format_count(len(failed), 'incident')} in a row ({', '.join(sorted(set(failed.values())))})"
            _open_breaker_incident(state, f"{text}; the breaker opens at {budget.breaker_failures}", now)
            return


def update_breaker_title(state: ClusterState, now: float) -> None:
    """Update the title with the number of failed nodes; operators are notified as it doubles.

    An open common-cause incident reports the number instead.
    """
    incident = state.incident_of(BREAKER)
    if incident is None:
        return
    since = incident.opened_at - LOOKED_BACK_S
    fleet = state.suspects.count(EVERYWHERE, since, drills=incident.injected)
    if fleet > incident.fleet:
        known = len(state.index.in_cluster)
        title = f"{incident.title.partition(_BY_NOW)[0]}{_BY_NOW}{fleet} of {format_count(known, 'node')} have failed"
        incident = replace(incident, fleet=fleet, title=title)
        state.put_incident(incident)
    if has_doubled(incident, now) and not any(wide.rule == CAUSE for wide in state.wide()):
        announce_group_incident(state, incident, RULE, _WAY_OUT, now)


def _open_breaker_incident(state: ClusterState, why: str, now: float) -> None:
    if state.incident_of(BREAKER) is None:
        opened = open_group_incident(state, BREAKER, RULE, f"no further node is isolated: {why}", state.held, now)
        fleet = state.suspects.count(EVERYWHERE, now - LOOKED_BACK_S, drills=opened.injected)
        incident = announce_group_incident(state, replace(opened, fleet=fleet), RULE, _WAY_OUT, now)
        state.note(now, "breaker_opened", why, incident=incident)

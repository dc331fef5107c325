"""Many nodes suspect at once share a cause: a rack, a switch, an image, a driver, a job. Then no single node is to blame.

Three of them within ten minutes become one incident about what they share, and none of them is isolated while it is open.
Members that are out already stay as they are. It ends when people resolve it, or when nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from remediator.decide.budget import Budget
from remediator.decide.wide import join, open_wide
from remediator.model.places import CAUSES
from remediator.model.records import Incident, NodeRecord
from remediator.recent import SUSPECTED
from remediator.state import ClusterState
from vocabulary.finding import Finding

RULE = "common-cause"
NAMED_MAX = 10
_LASTING = ("rack:", "switch:")  # while these are in doubt, so is every later suspect in them


def suspect(state: ClusterState, incident: Incident, finding: Finding, budget: Budget, now: float) -> None:
    """A rule asks for the first time to take this node out: does it share a cause with others?"""
    node = state.nodes[incident.node]
    at = finding.last_seen if now - budget.common_cause_within_s < finding.last_seen <= now else now
    late = finding.last_seen <= now - budget.common_cause_within_s  # news of long ago is no part of what happens now
    before = state.incidents.get(incident.id, incident)
    if late:
        return
    state.remember_deed(at, SUSPECTED, before)
    since = now - budget.common_cause_within_s
    standing = [wide for place in _places(node) if (wide := state.incident_of(place)) is not None]
    for wide in standing:
        burst = state.suspects.others(wide.node, node.node, since, drills=incident.injected)
        if burst or wide.node.startswith(_LASTING):
            join(state, wide, node.node)
    if not standing:
        _look(state, node, since, budget, now, drills=incident.injected)


def _look(state: ClusterState, node: NodeRecord, since: float, budget: Budget, now: float, *, drills: bool) -> None:
    found = {place: state.suspects.at(place, since, drills=drills) for place in _places(node)}
    enough = [place for place, nodes in found.items() if len(nodes) >= budget.common_cause_nodes]
    if not enough:
        return
    cause = min(enough, key=lambda place: (-len(found[place]), _population(state, place), place))
    nodes = sorted(found[cause])
    kind, _, name = cause.partition(":")
    also = [place.replace(":", " ") for place in enough if place != cause]
    why = (
        f"{len(nodes)} of {_population(state, cause)} nodes of {kind} {name} became suspect within "
        f"{budget.common_cause_within_s:g} s ({', '.join(nodes[:NAMED_MAX])})"
        + (f"; they also share {', '.join(also)}" if also else "")
        + "; none of them is isolated until somebody has looked"
    )
    open_wide(state, cause, RULE, why, nodes, now)


def _places(node: NodeRecord) -> Iterator[str]:
    for kind in CAUSES:
        for name in node.places.of(kind):
            yield f"{kind}:{name}"
    for job in dict.fromkeys(ref.job for ref in node.jobs):
        yield f"job:{job}"


def _population(state: ClusterState, place: str) -> int:
    kind, _, name = place.partition(":")
    return state.width_of(name) if kind == "job" else len(state.index.members(place))

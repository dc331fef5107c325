"""Nodes that say nothing any more. Silence is unknown, never healthy, and alone it takes no node out.

One that is silent gets a finding. Many at once, or most of a rack or a switch, are the network's fault or ours: one incident
about that, nothing about the nodes, and none of them is isolated on what it said before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import ceil

from msgspec.structs import replace

from remediator import incidents
from remediator.decide.plan import close
from remediator.decide.settings import Silence
from remediator.decide.wide import open_wide
from remediator.model.inputs import SilenceObserved
from remediator.model.records import Incident, NodeRecord
from remediator.model.rules import NodeState
from remediator.state import ClusterState
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

RULE = "silence"
CHECK, CODE = "node", "silent"
NAMED_MAX = 10
_CLUSTER = "cluster"
_HOST = Component(ComponentKind.HOST)
_GONE = {NodeState.OPERATOR_HELD, NodeState.RETIRED}


def observe(state: ClusterState, item: SilenceObserved, limits: Silence) -> set[str]:
    """Take in who is silent now. Returns the nodes it concerns."""
    silent = {name: at for name, at in item.silent.items() if _expected(state.nodes.get(name))}
    groups = _groups(state, silent, limits)
    _keep(state, groups, item.at)
    covered = {name for nodes in groups.values() for name in nodes}
    touched = set()
    for name in sorted(silent.keys() - covered):
        if not any(f.check == CHECK for f in state.active_on(name)):
            _absorb(state, _finding(name, silent[name], item.at), item.at)
            touched.add(name)
    heard = [f for f in state.findings.values() if f.active and f.check == CHECK and f.node not in item.silent]
    for finding in heard:
        _absorb(state, finding.cleared(item.at, "the node was heard again"), item.at)
        touched.add(finding.node)
    return touched


def _expected(node: NodeRecord | None) -> bool:
    """A node that is out may be off; nobody wonders at its silence."""
    return node is not None and not node.held and node.state not in _GONE


def _groups(state: ClusterState, silent: Mapping[str, float], limits: Silence) -> dict[str, list[str]]:
    """What is silent as a whole, and its silent nodes."""
    total = len(state.nodes)
    if len(silent) >= max(limits.nodes_min, ceil(total * limits.fraction)):
        return {_CLUSTER: sorted(silent)}
    at: dict[str, list[str]] = {}
    for name in sorted(silent):
        places = state.nodes[name].places
        for kind in ("switch", "rack"):
            for place in places.of(kind):
                at.setdefault(f"{kind}:{place}", []).append(name)
    return {
        place: nodes
        for place, nodes in at.items()
        if len(nodes) >= max(limits.nodes_min, ceil(len(state.index.members(place)) * limits.place_fraction))
    }


def _keep(state: ClusterState, groups: Mapping[str, list[str]], now: float) -> None:
    """Open, follow and close the incidents about silence as a whole."""
    standing = {i.node: i for i in state.wide() if i.rule == RULE}
    for about, incident in standing.items():
        if about.removeprefix(f"{RULE}:") not in groups:
            close(state, incident, "heard again, or no longer silent as a whole", now)
    for place, nodes in groups.items():
        known = standing.get(f"{RULE}:{place}")
        if known is None:
            open_wide(state, f"{RULE}:{place}", RULE, _why(state, place, nodes), nodes, now)
        else:
            _follow(state, known, nodes)


def _follow(state: ClusterState, incident: Incident, nodes: Iterable[str]) -> None:
    if incident.members != tuple(nodes):
        state.put_incident(replace(incident, members=tuple(nodes)))


def _why(state: ClusterState, place: str, nodes: list[str]) -> str:
    known = len(state.nodes) if place == _CLUSTER else len(state.index.members(place))
    where = "" if place == _CLUSTER else f" of {place.replace(':', ' ')}"
    named = ", ".join(nodes[:NAMED_MAX]) + (", …" if len(nodes) > NAMED_MAX else "")
    return f"{len(nodes)} of {known} nodes{where} are silent at once ({named}); that is the network or this centre, not they"


def _finding(node: str, last_heard: float, now: float) -> Finding:
    origin = f"silence:{last_heard!r}"
    return Finding(
        id=finding_id(node, CHECK, CODE, _HOST, origin),
        node=node,
        check=CHECK,
        code=CODE,
        component=_HOST,
        severity=Severity.WARNING,
        summary=f"nothing was heard of it for {now - last_heard:.0f} s",
        first_seen=now,
        last_seen=now,
        origin=origin,
        level=True,
        evidence={"last_heard": last_heard},
    )


def _absorb(state: ClusterState, finding: Finding, now: float) -> None:
    incidents.absorb(state, finding, now, lambda _: False, current=True)

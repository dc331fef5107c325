"""Nodes that say nothing any more. Silence is unknown, never healthy, and alone it takes no node out.

One that is silent gets a finding. Most of a rack or a switch, or many at once, are the fault of what they share, the
network's or ours: one incident about that, nothing about the nodes, and none of them is isolated on what it said before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from msgspec.structs import replace

from remediator import incidents
from remediator.decide.plan import close
from remediator.decide.settings import Silence
from remediator.decide.wide import all_of, has_doubled, named, open_wide, say
from remediator.model.concluded import CENTRE
from remediator.model.inputs import SilenceObserved
from remediator.model.records import SILENCE, Incident, NodeRecord
from remediator.model.rules import NodeState
from remediator.state import ClusterState
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

RULE = SILENCE
CHECK, CODE = "node", "silent"
ORIGIN = f"{CENTRE}{RULE}"  # no node can say this of itself, and what one says under the same name is not meant
_CLUSTER = "cluster"
_PLACES = ("rack", "switch")
_HOST = Component(ComponentKind.HOST)
_GONE = {NodeState.OPERATOR_HELD, NodeState.RETIRED}


def observe(state: ClusterState, item: SilenceObserved, limits: Silence) -> set[str]:
    """Take in who is silent now. Returns the nodes it concerns."""
    silent = {name: at for name, at in item.silent.items() if _expected(state.nodes.get(name))}
    groups = _groups(state, silent, limits)
    _keep(state, groups, item)
    covered = {name for nodes in groups.values() for name in nodes}
    touched = set()
    for name in sorted(silent.keys() - covered):
        if not _standing(state.findings_on(name)):
            _absorb(state, _finding(name, silent[name], item.at), item.at)
            touched.add(name)
    for finding in _standing(state.findings.values()):
        if finding.node not in item.silent or finding.node in covered:
            why = "it is silent together with others" if finding.node in covered else "the node was heard again"
            _absorb(state, finding.cleared(item.at, why), item.at)
            touched.add(finding.node)
    return touched


def told_silent(findings: Iterable[Finding], incidents: Iterable[Incident]) -> dict[str, float]:
    """Who is silent by what was told last, and since when at the latest (UTC s)."""
    alone = {f.node: float(f.evidence["last_heard"]) for f in _standing(findings)}
    together = {name: i.opened_at for i in incidents if i.wide and i.rule == RULE for name in i.members}
    return alone | together


def _standing(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.active and f.origin.startswith(ORIGIN)]


def _expected(node: NodeRecord | None) -> bool:
    """A node that is out may be off; nobody wonders at its silence."""
    return node is not None and not node.held and node.state not in _GONE


def _groups(state: ClusterState, silent: Mapping[str, float], limits: Silence) -> dict[str, list[str]]:
    """What is silent as a whole, and its silent nodes: the cluster, unless one place alone explains that it looks so."""
    many = max(limits.nodes_min, ceil(len(state.index.in_cluster) * limits.fraction))
    groups: dict[str, list[str]] = {}
    left = set(silent)
    while (place := _darkest(state, left, limits)) is not None:
        groups[place] = sorted(left & state.index.members(place))
        left -= state.index.members(place)
        if len(left) >= many:
            break
    if len(silent) >= many and (len(groups) != 1 or len(left) >= many):
        return {_CLUSTER: sorted(silent)}
    return groups


def _darkest(state: ClusterState, silent: Iterable[str], limits: Silence) -> str | None:
    """Of the racks and switches that count as silent the one with most silent nodes, and of several the smallest."""
    count = Counter(
        f"{kind}:{place}" for name in silent for kind in _PLACES for place in state.nodes[name].places.of(kind)
    )
    population = {place: len(state.index.members(place)) for place in count}
    dark = [p for p, n in count.items() if n >= max(limits.nodes_min, ceil(population[p] * limits.place_fraction))]
    return min(dark, key=lambda place: (-count[place], population[place], place), default=None)


def _keep(state: ClusterState, groups: Mapping[str, list[str]], item: SilenceObserved) -> None:
    """Open, follow and close the incidents about silence as a whole."""
    standing = {i.node: i for i in state.wide() if i.rule == RULE}
    for place, nodes in groups.items():
        known = standing.get(f"{RULE}:{place}")
        if known is None:
            why = _why(state, place, nodes)
            opened = open_wide(state, f"{RULE}:{place}", RULE, why, nodes, item.at)
            say(state, opened, RULE, "", item.at)
        else:
            _follow(state, known, _why(state, place, nodes), nodes, item.at)
    for about, incident in standing.items():
        if about.removeprefix(f"{RULE}:") not in groups:
            close(state, incident, _ended(incident, groups, item), item.at)


def _ended(incident: Incident, groups: Mapping[str, list[str]], item: SilenceObserved) -> str:
    still = [name for name in incident.members if name in item.silent]
    if not still:
        return "heard again"
    wholes = [f"{RULE}:{place}" for place, nodes in groups.items() if not set(nodes).isdisjoint(still)]
    if wholes:
        return f"part of {', '.join(wholes)} now"
    return "not silent as a whole any more; who still is, is told alone"


def _follow(state: ClusterState, incident: Incident, why: str, nodes: Iterable[str], now: float) -> None:
    """Its title says who is silent now, and people hear it as their number doubles."""
    if incident.members != tuple(nodes):
        incident = replace(incident, members=tuple(nodes), title=why)
        state.put_incident(incident)
    if has_doubled(incident, now):
        say(state, incident, RULE, "", now)


def _why(state: ClusterState, place: str, nodes: list[str]) -> str:
    known = len(state.index.in_cluster if place == _CLUSTER else state.index.members(place))
    where = "" if place == _CLUSTER else f" of {place.replace(':', ' ')}"
    who = f"{all_of(len(nodes), known, 'node')}{where} are silent at once ({named(nodes)})"
    return f"{who}; the cause is the network or this centre, not the nodes"


def _finding(node: str, last_heard: float, now: float) -> Finding:
    origin = f"{ORIGIN}:{now!r}"  # what was told of an earlier time alone is over, also where it was not heard since
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

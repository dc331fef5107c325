"""Silent nodes. Silence means unknown, never healthy, and alone it isolates no node.

A single silent node gets a finding. If most of a rack or a switch, or many nodes at once, are silent, the cause is what
they share, the network or the controller: one incident about that, none about the nodes, and no isolation on old
findings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil

from msgspec.structs import replace

from remediator.decisions.decision_settings import SilenceLimits
from remediator.decisions.group_incidents import (
    announce_group_incident,
    count_of_total,
    has_doubled,
    name_first_nodes,
    open_group_incident,
)
from remediator.decisions.plan_progress import close_incident
from remediator.incidents import finding_intake
from remediator.model.detector_origin import CENTRE
from remediator.model.journal_records import SILENCE, Incident, NodeRecord
from remediator.model.pipeline_inputs import SilenceObserved
from remediator.model.rule_conditions import NodeState
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

RULE = SILENCE
CHECK, CODE = "node", "silent"
ORIGIN = f"{CENTRE}{RULE}"  # no node can report this of itself; the same name from a node is ignored
_CLUSTER = "cluster"
_PLACES = ("rack", "switch")
_HOST = Component(ComponentKind.HOST)
_GONE = {NodeState.OPERATOR_HELD, NodeState.RETIRED}


def apply_silence_observation(state: ClusterState, item: SilenceObserved, limits: SilenceLimits) -> set[str]:
    """Apply the current set of silent nodes. Returns the nodes it concerns."""
    silent = {name: at for name, at in item.silent.items() if _is_report_expected(state.nodes.get(name))}
    groups = _silent_groups(state, silent, limits)
    _maintain_silence_incidents(state, groups, item)
    covered = {name for nodes in groups.values() for name in nodes}
    touched = set()
    for name in sorted(silent.keys() - covered):
        if not _active_silence_findings(state.findings_on(name)):
            _absorb_silence_finding(state, _silence_finding(name, silent[name], item.at), item.at)
            touched.add(name)
    for finding in _active_silence_findings(state.findings.values()):
        if finding.node not in item.silent or finding.node in covered:
            why = "it is silent as part of a group" if finding.node in covered else "the node reports again"
            _absorb_silence_finding(state, finding.cleared(item.at, why), item.at)
            touched.add(finding.node)
    return touched


def reported_silent_nodes(findings: Iterable[Finding], incidents: Iterable[Incident]) -> dict[str, float]:
    """Return the nodes reported as silent last, and since when at the latest (UTC s)."""
    alone = {f.node: float(f.evidence["last_heard"]) for f in _active_silence_findings(findings)}
    together = {name: i.opened_at for i in incidents if i.wide and i.rule == RULE for name in i.members}
    return alone | together


def _active_silence_findings(findings: Iterable[Finding]) -> list[Finding]:
    return [f for f in findings if f.active and f.origin.startswith(ORIGIN)]


def _is_report_expected(node: NodeRecord | None) -> bool:
    """Return whether a node should report: an isolated one may be off."""
    return node is not None and not node.held and node.state not in _GONE


def _silent_groups(state: ClusterState, silent: Mapping[str, float], limits: SilenceLimits) -> dict[str, list[str]]:
    """Return silent groups and their silent nodes: the whole cluster, unless a single location explains the silence."""
    many = max(limits.nodes_min, ceil(len(state.index.in_cluster) * limits.fraction))
    groups: dict[str, list[str]] = {}
    left = set(silent)
    while (place := _most_silent_location(state, left, limits)) is not None:
        groups[place] = sorted(left & state.index.members(place))
        left -= state.index.members(place)
        if len(left) >= many:
            break
    if len(silent) >= many and (len(groups) != 1 or len(left) >= many):
        return {_CLUSTER: sorted(silent)}
    return groups


def _most_silent_location(state: ClusterState, silent: Iterable[str], limits: SilenceLimits) -> str | None:
    """Return the silent rack or switch with most silent nodes, and of several the smallest."""
    count = Counter(
        f"{kind}:{place}" for name in silent for kind in _PLACES for place in state.nodes[name].places.of(kind)
    )
    population = {place: len(state.index.members(place)) for place in count}
    dark = [p for p, n in count.items() if n >= max(limits.nodes_min, ceil(population[p] * limits.place_fraction))]
    return min(dark, key=lambda place: (-count[place], population[place], place), default=None)


def _maintain_silence_incidents(state: ClusterState, groups: Mapping[str, list[str]], item: SilenceObserved) -> None:
    """Open, update and close incidents about silent groups."""
    open_incidents = {i.node: i for i in state.wide() if i.rule == RULE}
    for place, nodes in groups.items():
        known = open_incidents.get(f"{RULE}:{place}")
        if known is None:
            why = _silence_reason(state, place, nodes)
            opened = open_group_incident(state, f"{RULE}:{place}", RULE, why, nodes, item.at)
            announce_group_incident(state, opened, RULE, "", item.at)
        else:
            _follow_silence_incident(state, known, _silence_reason(state, place, nodes), nodes, item.at)
    for about, incident in open_incidents.items():
        if about.removeprefix(f"{RULE}:") not in groups:
            close_incident(state, incident, _silence_end_reason(incident, groups, item), item.at)


def _silence_end_reason(incident: Incident, groups: Mapping[str, list[str]], item: SilenceObserved) -> str:
    still = [name for name in incident.members if name in item.silent]
    if not still:
        return "heard again"
    wholes = [f"{RULE}:{place}" for place, nodes in groups.items() if not set(nodes).isdisjoint(still)]
    if wholes:
        return f"now part of {', '.join(wholes)}"
    return "no longer silent as a group; nodes that still are get their own findings"


def _follow_silence_incident(
    state: ClusterState, incident: Incident, why: str, nodes: Iterable[str], now: float
) -> None:
    """Update the title with the silent nodes; operators are notified as the number doubles."""
    if incident.members != tuple(nodes):
        incident = replace(incident, members=tuple(nodes), title=why)
        state.put_incident(incident)
    if has_doubled(incident, now):
        announce_group_incident(state, incident, RULE, "", now)


def _silence_reason(state: ClusterState, place: str, nodes: list[str]) -> str:
    known = len(state.index.in_cluster if place == _CLUSTER else state.index.members(place))
    where = "" if place == _CLUSTER else f" of {place.replace(':', ' ')}"
    who = f"{count_of_total(len(nodes), known, 'node')}{where} are silent at the same time ({name_first_nodes(nodes)})"
    return f"{who}; the cause is the network or this controller, not the nodes"


def _silence_finding(node: str, last_heard: float, now: float) -> Finding:
    origin = f"{ORIGIN}:{now!r}"  # silence reported for an earlier time only has ended
    return Finding(
        id=finding_id(node, CHECK, CODE, _HOST, origin),
        node=node,
        check=CHECK,
        code=CODE,
        component=_HOST,
        severity=Severity.WARNING,
        summary=f"no report for {now - last_heard:.0f} s",
        first_seen=now,
        last_seen=now,
        origin=origin,
        level=True,
        evidence={"last_heard": last_heard},
    )


def _absorb_silence_finding(state: ClusterState, finding: Finding, now: float) -> None:
    finding_intake.absorb_finding(state, finding, now, lambda _: False, current=True)

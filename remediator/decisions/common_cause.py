"""Detects a common cause of many suspect nodes: a rack, a switch, an image, a driver or a job.

Either many nodes fail within minutes, or they fail one after another over hours and in larger number than chance
explains. Both become one incident about the location that explains them best. A sudden cause blocks isolations of its
members while open. A slow one is announced, and blocks once as many members are isolated: more isolations then help
nobody. Isolated members stay isolated. It ends when an operator resolves it, or when nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

import msgspec
from msgspec.structs import replace

from remediator.decisions import circuit_breaker
from remediator.decisions.group_incident_closure import close_as_part_of
from remediator.decisions.group_incidents import (
    announce_group_incident,
    count_of_total,
    describe_cause_consequences,
    has_doubled,
    join_group_incident,
    name_first_nodes,
    open_group_incident,
)
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.decisions.plan_progress import close_incident
from remediator.decisions.poisson_bound import log10_poisson_tail
from remediator.model.journal_records import CAUSE, EXPLAINING, SLOW_CAUSE, Incident, NodeRecord
from remediator.model.node_location import CAUSES
from remediator.state.cluster_state import ClusterState
from remediator.state.recent_failures import EVERYWHERE, REMEMBERED_S, STORM, SUSPECTED
from vocabulary.finding import Finding
from vocabulary.text.duration_format import format_period
from vocabulary.text.plurals import format_count

CHANCE_MAX = -4.0  # log10: what chance produces more often has no cause
_WHERE = {"rack": "in", "switch": "behind", "driver": "with", "image": "with"}
_LASTING = ("rack:", "switch:")  # while these are suspected, so is every later suspect in them


class _SuspectLocation(msgspec.Struct, frozen=True):
    """A location of a node, and how many became suspect there, suddenly and over hours, compared to the usual."""

    name: str
    population: int
    at_once: int
    slowly: int
    usual: float
    usual_at_once: float  # by configuration and history, whatever the rest does now

    @property
    def sudden(self) -> bool:
        """Whether the sudden number exceeds chance.

        Even a location as wide as the fleet (a driver all nodes run) rarely has so many.
        """
        return log10_poisson_tail(self.at_once, self.usual_at_once) <= CHANCE_MAX

    @property
    def rank(self) -> tuple[float, int, str]:
        """A sort key, likeliest cause first: least explained by chance, then narrowest."""
        return (log10_poisson_tail(self.slowly, self.usual), self.population, self.name)

    @property
    def unusual(self) -> bool:
        return self.rank[0] <= CHANCE_MAX

    def __str__(self) -> str:
        return self.name.replace(":", " ", 1)


class _CauseSearch(msgspec.Struct, frozen=True):
    """One search over the locations of a node that has just become suspect."""

    state: ClusterState
    budget: IsolationBudget
    now: float
    drills: bool

    def found(self, place: _SuspectLocation) -> list[str]:
        """Return the nodes that make it a cause. A drill counts real faults, but never blocks them."""
        window = _search_window_s(self.budget) if place.unusual else self.budget.common_cause_within_s
        nodes = sorted(self.state.suspects.at(place.name, self.now - window, drills=self.drills))
        return [name for name in nodes if not self.drills or _is_drill(self.state.incident_of(name))]

    def open_at(self, place: str) -> Incident | None:
        """Return the open cause about it; a cause from a drill does not count for a real fault."""
        known = self.state.incident_of(place)
        if known is None or known.rule not in (CAUSE, SLOW_CAUSE):
            return None  # a job's own fault does not break nodes
        return None if not self.drills and _is_drill(known) else known


def _is_drill(incident: Incident | None) -> bool:
    return incident is not None and incident.injected


def detect_common_cause(
    state: ClusterState, incident: Incident, finding: Finding, budget: IsolationBudget, now: float
) -> None:
    """A rule asks for the first time to isolate this node: find a cause it shares with others."""
    recent = finding.last_seen > now - _search_window_s(budget)
    if recent or finding.active:  # old news is not part of the current event, unless the node still asserts it
        at = min(finding.last_seen, now) if recent else now  # its clock may be wrong, and so may a whole rack's
        state.remember_occurrence(at, SUSPECTED, state.incidents.get(incident.id, incident))
        _search_causes(_CauseSearch(state, budget, now, incident.injected), state.nodes[incident.node])
    circuit_breaker.check_suspect_count(state, budget, now)


def _search_window_s(budget: IsolationBudget) -> float:
    return max(budget.common_cause_slow_s, budget.common_cause_within_s)


def update_cause_titles(state: ClusterState, budget: IsolationBudget, now: float) -> None:
    """Update the number in the titles of open causes; operators are notified as it doubles."""
    for known in state.wide():
        if known.rule not in (CAUSE, SLOW_CAUSE):
            continue
        grown = replace(known, fleet=max(known.fleet, _failed_node_count(state, known, budget)))
        if grown.fleet > known.fleet:
            grown = replace(grown, title=_cause_title(state, grown, budget))
            state.put_incident(grown)
        if has_doubled(grown, now):
            announce_group_incident(
                state,
                grown,
                grown.rule,
                describe_cause_consequences(state, grown, grown.rule, budget.common_cause_nodes),
                now,
            )


def _search_causes(look: _CauseSearch, node: NodeRecord) -> None:
    state, least = look.state, look.budget.common_cause_nodes
    storm = look.open_at(STORM)
    if storm is not None and _is_burst(look, EVERYWHERE, node):
        join_group_incident(state, storm, node.node)
        return
    places = _suspect_locations(look, node)
    at_once = [place for place in places if place.at_once >= least and place.sudden]
    slowly = [place for place in places if place.slowly >= least and place.unusual]
    enough = at_once or slowly
    for place in places:
        known = look.open_at(place.name)
        if known is not None and (
            place.name.startswith(_LASTING) or (not enough and _is_burst(look, place.name, node))
        ):
            join_group_incident(state, known, node.node)
    if not enough:
        return
    best = min(enough, key=lambda place: place.rank)
    known = look.open_at(best.name)
    if known is None:
        _open_cause_incident(look, best, enough, at_once=best in at_once)
        return
    known = join_group_incident(state, known, node.node)
    if best in at_once and known.rule == SLOW_CAUSE:
        _announce_cause(look, known, CAUSE, best, enough)
    within = [p for p in slowly if p.population < best.population and look.open_at(p.name) is None]
    beside = [w for w in state.wide() if w.rule in (CAUSE, SLOW_CAUSE) and w.node != best.name]
    if within and len(beside) + 1 < least:  # more than the wider one explains; but many narrow ones are no coincidence
        narrow = min(within, key=lambda place: place.rank)
        _open_cause_incident(look, narrow, within, at_once=narrow in at_once, above=False)


def _is_burst(look: _CauseSearch, place: str, node: NodeRecord) -> bool:
    since = look.now - look.budget.common_cause_within_s
    return look.state.suspects.others(place, node.node, since, drills=look.drills)


def _open_cause_incident(
    look: _CauseSearch, cause: _SuspectLocation, enough: list[_SuspectLocation], *, at_once: bool, above: bool = True
) -> None:
    """Open one incident for the nodes; it absorbs open causes that it explains better.

    `above`: of many overlapping causes, one incident above all of them is opened instead.
    """
    state, nodes = look.state, look.found(cause)
    causes = [w for w in state.wide() if w.rule in (CAUSE, SLOW_CAUSE)]
    beside = [w for w in causes if not set(w.members) <= set(nodes) and _cause_overlaps(look, w)]
    together = len({*nodes, *(name for w in beside for name in w.members)})
    parts = [w for w in beside if 2 * len(w.members) < together]  # a cause with most of the nodes is not absorbed
    if at_once and above and len(parts) + 1 >= look.budget.common_cause_nodes:
        _open_storm_incident(look, cause, enough, parts)
        return
    others = [w for w in causes if not set(nodes).isdisjoint(w.members)]
    held = at_once or any(other.rule == CAUSE for other in others)
    opened = _cause_incident_with_title(look, cause.name, nodes, CAUSE if held else SLOW_CAUSE)
    opened = _announce_cause(look, opened, opened.rule, cause, enough)
    for other in (w for w in others if w.id in state.incidents and w.id != opened.id):
        left = tuple(name for name in other.members if name not in nodes)
        if left:
            state.put_incident(replace(other, members=left))
        else:
            opened = close_as_part_of(state, opened, other, look.now)


def _open_storm_incident(
    look: _CauseSearch, cause: _SuspectLocation, enough: list[_SuspectLocation], parts: list[Incident]
) -> None:
    """So many causes overlap that together they are a storm: open one incident above all of them.

    It is about the narrowest location that explains them all, or about the cluster.
    """
    state, since = look.state, look.now - look.budget.common_cause_within_s
    nodes = {*look.found(cause), *(name for other in parts for name in other.members)}
    wider = [place for place in enough if nodes <= set(look.found(place))]
    above = min(wider, key=lambda place: place.population, default=None)
    if above is not None:
        nodes = set(look.found(above))
    else:
        apart = {name for w in state.wide() if w.rule in EXPLAINING and w not in parts for name in w.members}
        nodes |= state.suspects.at(EVERYWHERE, since, drills=look.drills) - apart
    opened = _cause_incident_with_title(look, above.name if above is not None else STORM, sorted(nodes), CAUSE)
    opened = _announce_cause(look, opened, CAUSE, above, enough)
    for other in (w for w in parts if w.id in state.incidents and w.id != opened.id):
        opened = close_as_part_of(state, opened, other, look.now)


def _cause_overlaps(look: _CauseSearch, other: Incident) -> bool:
    """Return whether another cause belongs to the current event: as real (no drill), and of the last minutes."""
    return other.injected == look.drills and other.opened_at > look.now - look.budget.common_cause_within_s


def _cause_incident_with_title(look: _CauseSearch, about: str, nodes: list[str], rule: str) -> Incident:
    """Return the incident with its title. An incident about a job's own fault covers this as well from now on."""
    state, made = look.state, look.state.incident_of(about)
    if made is not None and made.rule in (CAUSE, SLOW_CAUSE):
        close_incident(state, made, "new failures there are not drills", look.now)
        made = None
    if made is None:
        made = open_group_incident(
            state,
            about,
            rule,
            f"{format_count(len(nodes), 'node')} {_describe_location(about)} failed",
            nodes,
            look.now,
        )
    made = replace(made, rule=rule, members=tuple(sorted({*made.members, *nodes})))
    made = replace(made, fleet=max(len(nodes), _failed_node_count(state, made, look.budget)))
    made = replace(made, title=_cause_title(state, made, look.budget))
    state.put_incident(made)
    return made


def _announce_cause(
    look: _CauseSearch,
    incident: Incident,
    rule: str,
    cause: _SuspectLocation | None,
    enough: Iterable[_SuspectLocation],
) -> Incident:
    """Announce the current facts and their consequences. Returns the updated incident."""
    said = []
    if cause is not None:
        also = [str(place) for place in enough if place is not cause and place.slowly >= cause.slowly]
        said += [f"They also share {', '.join(also)}"] if also else []
        if len(look.found(cause)) > cause.at_once:
            said.append(f"In {format_period(_search_window_s(look.budget))}, {cause.usual:.1g} are usual there")
    said.append(describe_cause_consequences(look.state, incident, rule, look.budget.common_cause_nodes))
    return announce_group_incident(look.state, incident, rule, ". ".join(said), look.now)


def _failed_node_count(state: ClusterState, incident: Incident, budget: IsolationBudget) -> int:
    """Return the number of nodes in the whole cluster that failed since a cause began."""
    return state.suspects.count(EVERYWHERE, _cause_window_start(incident, budget), drills=incident.injected)


def _cause_window_start(incident: Incident, budget: IsolationBudget) -> float:
    back_s = budget.common_cause_within_s if incident.rule == CAUSE else _search_window_s(budget)
    return incident.opened_at - back_s


def _cause_title(state: ClusterState, incident: Incident, budget: IsolationBudget) -> str:
    """Build the title, the largest number first: failed nodes, then those that the cause explains."""
    about, members, drills = incident.node, incident.members, incident.injected
    total, since = len(state.index.in_cluster), _cause_window_start(incident, budget)
    in_fleet = _format_burst_span(state.suspects.span_s(EVERYWHERE, since, drills=drills))
    if about == STORM:
        kind, places = _most_common_locations(state, members)
        where = (
            f" in {format_count(len(places), kind)} ({name_first_nodes(sorted(places))})"
            if places
            else f" ({name_first_nodes(members)})"
        )
        return f"{count_of_total(incident.fleet, total, 'node')} failed within {in_fleet}{where}. No single location explains them"
    here = f"{count_of_total(len(members), max(_location_population(state, about), len(members)), 'node')} {_describe_location(about)}"
    if incident.fleet > len(members):
        return f"{count_of_total(incident.fleet, total, 'node')} failed within {in_fleet}, among them {here} ({name_first_nodes(members)})"
    return f"{here} failed within {_format_burst_span(state.suspects.span_s(about, since, drills=drills))} ({name_first_nodes(members)})"


def _format_burst_span(seconds: float) -> str:
    """Format how long a burst took, rounded."""
    return format_period(max(1.0, ceil(seconds)) if seconds < 600 else 60.0 * ceil(seconds / 60))


def _describe_location(about: str) -> str:
    kind, _, name = about.partition(":")
    return f"{_WHERE.get(kind, 'of')} {kind} {name}"


def _most_common_locations(state: ClusterState, members: Iterable[str]) -> tuple[str, set[str]]:
    """List the nodes' racks or, if unknown, their switches, or their jobs."""
    records = [state.nodes[name] for name in members if name in state.nodes]
    for kind in ("rack", "switch"):
        if found := {name for record in records for name in record.places.of(kind)}:
            return kind, found
    return "job", {ref.job for record in records for ref in record.jobs}


def _suspect_locations(look: _CauseSearch, node: NodeRecord) -> list[_SuspectLocation]:
    """Return all locations of a node. The usual rate is from configuration, history, and the rest of wider locations.

    Nodes explained by a wider cause that this node has no part in say nothing about their rack.
    """
    state, budget, drills = look.state, look.budget, look.drills
    window = _search_window_s(budget)

    names = list(_location_names(node))
    elsewhere = [w for w in state.wide() if w.rule in (CAUSE, SLOW_CAUSE) and w.node not in names and w.node != STORM]

    def count(place: str, within_s: float) -> int:
        since = look.now - within_s
        wider = [
            w for w in elsewhere if place and _location_population(state, w.node) > _location_population(state, place)
        ]
        explained = {name for w in wider if drills or not w.injected for name in w.members if name != node.node}
        return state.suspects.count(place, since, drills=drills) - state.suspects.count_of(
            place, explained, since, drills=drills
        )

    total, everywhere = max(1, len(state.index.in_cluster)), count(EVERYWHERE, window)
    before = (count(EVERYWHERE, REMEMBERED_S) - everywhere) / total / max(1.0, REMEMBERED_S - window)
    rate = max(before, 1 / (budget.common_cause_usual_h * 3600.0)) * window
    slowly = {name: count(name, window) for name in names}
    size = {name: max(_location_population(state, name), slowly[name]) for name in slowly}
    wider = [(total, everywhere), *((size[name], slowly[name]) for name in slowly)]
    found = []
    for name, seen in slowly.items():
        rest = [(others - seen) / (around - size[name]) for around, others in wider if around > size[name]]
        usual = size[name] * max([rate, *rest])
        short = budget.common_cause_within_s
        found.append(
            _SuspectLocation(name, size[name], count(name, short), seen, usual, size[name] * rate * short / window)
        )
    return found


def _location_names(node: NodeRecord) -> Iterator[str]:
    for kind in CAUSES:
        for name in node.places.of(kind):
            yield f"{kind}:{name}"
    for job in dict.fromkeys(ref.job for ref in node.jobs):
        yield f"job:{job}"


def _location_population(state: ClusterState, place: str) -> int:
    kind, _, name = place.partition(":")
    return len(state.nodes_of_job(name)) if kind == "job" else len(state.index.members(place))

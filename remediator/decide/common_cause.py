"""Many nodes become suspect and share a cause: a rack, a switch, an image, a driver, a job. Then no single node is to blame.

Either so many come at once, within minutes, or they come one after another over hours, and more of them than chance would
have it. Both become one incident about the place that explains them best. What comes at once is held back: no member is
isolated while it is open. What comes slowly is told, and held back once as many members are out: by then isolating more helps
nobody. Members that are out already stay as they are. It ends when people resolve it, or when nothing is left of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from msgspec.structs import replace

from remediator.decide import breaker
from remediator.decide.budget import Budget
from remediator.decide.chance import log10_chance
from remediator.decide.plan import close
from remediator.decide.wide import CAUSE, SLOW_CAUSE, join, open_wide, say
from remediator.model.places import CAUSES
from remediator.model.records import Incident, NodeRecord
from remediator.recent import EVERYWHERE, REMEMBERED_S, SUSPECTED
from remediator.state import ClusterState
from vocabulary.finding import Finding
from vocabulary.spans import period

NAMED_MAX = 10
CHANCE_MAX = -4.0  # log10: what comes more often by chance is nobody's fault
_LASTING = ("rack:", "switch:")  # while these are in doubt, so is every later suspect in them


class _Place(msgspec.Struct, frozen=True):
    """A place of a node, and how many became suspect there: at once, and over hours, against what is usual."""

    name: str
    population: int
    at_once: int
    slowly: int
    usual: float
    usual_at_once: float  # by the books and before, whatever the rest does now

    @property
    def sudden(self) -> bool:
        """Not even a place as wide as the fleet (a driver that all run) has so many at once by chance."""
        return log10_chance(self.at_once, self.usual_at_once) <= CHANCE_MAX

    @property
    def rank(self) -> tuple[float, int, str]:
        """The likeliest cause first: what chance explains least, then the narrowest."""
        return (log10_chance(self.slowly, self.usual), self.population, self.name)

    @property
    def unusual(self) -> bool:
        return self.rank[0] <= CHANCE_MAX

    def __str__(self) -> str:
        return self.name.replace(":", " ", 1)


class _Look(msgspec.Struct, frozen=True):
    """One look at the places of a node that became suspect just now."""

    state: ClusterState
    budget: Budget
    now: float
    drills: bool

    def found(self, place: _Place) -> list[str]:
        """The nodes that make it a cause. A drill counts real faults, but it is no reason to hold them back."""
        window = _window(self.budget) if place.unusual else self.budget.common_cause_within_s
        nodes = sorted(self.state.suspects.at(place.name, self.now - window, drills=self.drills))
        return [name for name in nodes if not self.drills or _is_drill(self.state.incident_of(name))]

    def open_at(self, place: _Place) -> Incident | None:
        """The open incident about it; what a drill opened is none to a real fault."""
        known = self.state.incident_of(place.name)
        return None if not self.drills and _is_drill(known) else known


def _is_drill(incident: Incident | None) -> bool:
    return incident is not None and incident.injected


def suspect(state: ClusterState, incident: Incident, finding: Finding, budget: Budget, now: float) -> None:
    """A rule asks for the first time to take this node out: does it share a cause with others?"""
    recent = finding.last_seen > now - _window(budget)
    if recent or finding.active:  # news of long ago is no part of what happens now, but for what a node still asserts
        at = min(finding.last_seen, now) if recent else now  # its clock may be anywhere, and a rack's all together
        state.remember_deed(at, SUSPECTED, state.incidents.get(incident.id, incident))
        _search(_Look(state, budget, now, incident.injected), state.nodes[incident.node])
    breaker.after_suspicion(state, budget, now)


def _window(budget: Budget) -> float:
    return max(budget.common_cause_slow_s, budget.common_cause_within_s)


def _search(look: _Look, node: NodeRecord) -> None:
    state, least = look.state, look.budget.common_cause_nodes
    places = _places(look, node)
    at_once = [place for place in places if place.at_once >= least and place.sudden]
    slowly = [place for place in places if place.slowly >= least and place.unusual]
    enough = at_once or slowly
    for place in places:
        known = look.open_at(place)
        if known is not None and (place.name.startswith(_LASTING) or (not enough and _burst(look, place, node))):
            join(state, known, node.node)
    if not enough:
        return
    best = min(enough, key=lambda place: place.rank)
    known = look.open_at(best)
    if known is None:
        _open(look, best, enough, at_once=best in at_once)
        return
    join(state, known, node.node)
    if best in at_once and known.rule == SLOW_CAUSE:
        say(state, state.incidents[known.id], CAUSE, _why(look, best, enough, at_once=True), look.now)
    within = [p for p in slowly if p.population < best.population and look.open_at(p) is None]
    beside = [w for w in state.wide() if w.rule in (CAUSE, SLOW_CAUSE) and w.node != best.name]
    if within and len(beside) + 1 < least:  # more than the wider explains; but many narrow ones are no coincidence
        narrow = min(within, key=lambda place: place.rank)
        _open(look, narrow, within, at_once=narrow in at_once)


def _burst(look: _Look, place: _Place, node: NodeRecord) -> bool:
    since = look.now - look.budget.common_cause_within_s
    return look.state.suspects.others(place.name, node.node, since, drills=look.drills)


def _open(look: _Look, cause: _Place, enough: Iterable[_Place], *, at_once: bool) -> None:
    """One incident for them; what it explains better than another one that is open is no part of that any more."""
    state, nodes = look.state, look.found(cause)
    others = [w for w in state.wide() if w.rule in (CAUSE, SLOW_CAUSE) and not set(nodes).isdisjoint(w.members)]
    held = at_once or any(other.rule == CAUSE for other in others)
    why = _why(look, cause, enough, at_once=held)
    drill = state.incident_of(cause.name)
    if drill is not None:
        close(state, drill, "what happens there now is no drill", look.now)
    opened = open_wide(state, cause.name, CAUSE if held else SLOW_CAUSE, why, nodes, look.now)
    for other in (w for w in others if w is not drill):
        left = tuple(name for name in other.members if name not in nodes)
        if left:
            state.put_incident(replace(other, members=left))
        else:
            close(state, other, f"part of {opened.id}, {opened.node}, now", look.now)


def _why(look: _Look, cause: _Place, enough: Iterable[_Place], *, at_once: bool) -> str:
    nodes = look.found(cause)
    quick = len(nodes) <= cause.at_once
    window = look.budget.common_cause_within_s if quick else _window(look.budget)
    named = ", ".join(nodes[:NAMED_MAX]) + (", …" if len(nodes) > NAMED_MAX else "")
    also = ", ".join(str(place) for place in enough if place is not cause and place.slowly >= cause.slowly)
    kind, _, name = cause.name.partition(":")
    return (
        f"{len(nodes)} of {cause.population} nodes of {kind} {name} became suspect within {period(window)} ({named})"
        + ("" if quick else f", where {cause.usual:.1g} are usual")
        + (f"; they also share {also}" if also else "")
        + "; "
        + (
            "none of them is isolated until somebody has looked"
            if at_once
            else f"they are isolated within the budget until {look.budget.common_cause_nodes} of them are out"
        )
    )


def _places(look: _Look, node: NodeRecord) -> list[_Place]:
    """All places of a node. Usual is what the fleet sees otherwise: by the books, before, and in the rest of wider places."""
    state, budget, drills = look.state, look.budget, look.drills
    window = _window(budget)

    def count(place: str, within_s: float) -> int:
        return state.suspects.count(place, look.now - within_s, drills=drills)

    total, everywhere = max(1, len(state.index.in_cluster)), count(EVERYWHERE, window)
    before = (count(EVERYWHERE, REMEMBERED_S) - everywhere) / total / max(1.0, REMEMBERED_S - window)
    rate = max(before, 1 / (budget.common_cause_usual_h * 3600.0)) * window
    slowly = {name: count(name, window) for name in _names(node)}
    size = {name: max(_population(state, name), slowly[name]) for name in slowly}
    wider = [(total, everywhere), *((size[name], slowly[name]) for name in slowly)]
    found = []
    for name, seen in slowly.items():
        rest = [(others - seen) / (around - size[name]) for around, others in wider if around > size[name]]
        usual = size[name] * max([rate, *rest])
        short = budget.common_cause_within_s
        found.append(_Place(name, size[name], count(name, short), seen, usual, size[name] * rate * short / window))
    return found


def _names(node: NodeRecord) -> Iterator[str]:
    for kind in CAUSES:
        for name in node.places.of(kind):
            yield f"{kind}:{name}"
    for job in dict.fromkeys(ref.job for ref in node.jobs):
        yield f"job:{job}"


def _population(state: ClusterState, place: str) -> int:
    kind, _, name = place.partition(":")
    return state.width_of(name) if kind == "job" else len(state.index.members(place))

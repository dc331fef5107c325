"""The committed state as one look at it: what is worst, what blocks or waits, who is not heard. Bounded. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import asdict

from remediator.api.render import incident_view, node_line
from remediator.decide.approval import proposed
from remediator.decide.policy import Rule
from remediator.engine import Snapshot
from remediator.index import is_in_cluster
from remediator.model.blocking import of_one
from remediator.model.hold import Owner
from remediator.model.plan import ONLY_TELLING
from remediator.model.records import Action, Decision, Incident, IncidentState
from remediator.model.standing import AlertSilence
from remediator.model.views import NodeView
from remediator.model.views_overview import HeardView, NamedNodes, SilencedView, ToldIncident
from remediator.roster import Roster
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.order import TRAINER_ORDERS

NAMES_MAX = 20
FINDINGS_MAX, ACTIONS_MAX = 20, 20  # of one incident
_TELLING = {verb.value for verb in ONLY_TELLING}
_TO_RANKS = {kind.value for kind in TRAINER_ORDERS}


def worst_first(snapshot: Snapshot) -> list[Incident]:
    """Open incidents: nobody's test, what many nodes share, the worst finding, what waits for people, the oldest."""

    def rank(incident: Incident) -> tuple[bool, bool, int, bool, float, str]:
        worst = max((finding.severity.rank for finding in _live(incident, snapshot)), default=-1)
        waits = incident.state is IncidentState.WAITING
        return incident.injected, incident.node in snapshot.nodes, -worst, not waits, incident.opened_at, incident.id

    return sorted(snapshot.incidents.values(), key=rank)


def told_incidents(
    chosen: Sequence[Incident], snapshot: Snapshot, decisions: Mapping[str, Decision], rules: Mapping[str, Rule]
) -> tuple[ToldIncident, ...]:
    """Each with what matters of it now; `decisions` by id, as far as they are known."""
    actions: dict[str, list[Action]] = {incident.id: [] for incident in chosen}
    for action in snapshot.actions.values():
        if action.incident in actions:
            actions[action.incident].append(action)
    return tuple(_told(each, snapshot, actions[each.id], decisions.get(each.decision), rules) for each in chosen)


def _told(
    incident: Incident,
    snapshot: Snapshot,
    actions: Sequence[Action],
    decision: Decision | None,
    rules: Mapping[str, Rule],
) -> ToldIncident:
    live = sorted(_live(incident, snapshot), key=lambda each: (-each.severity.rank, each.first_seen, each.id))
    ended = sorted((action for action in actions if action.state.final), key=_weight, reverse=True)
    decided = (decision,) if decision is not None else ()
    untold = [action.id for action in actions if action.untold]
    view = incident_view(incident, live[:FINDINGS_MAX], decided, ended[:ACTIONS_MAX], untold=untold)
    partly = not incident.injected and any(finding.injected for finding in _known(incident, snapshot))
    known = asdict(view) | {"proposed": proposed(incident, rules), "partly_injected": partly}
    left = max(0, len(live) - FINDINGS_MAX), max(0, len(ended) - ACTIONS_MAX)
    return ToldIncident(**known, findings_more=left[0], actions_more=left[1])


def _weight(action: Action) -> tuple[int, float, str]:
    """A plan may have hundreds of deeds. What was done to a node weighs most, to tell people least; then the newest."""
    kind = 0 if action.verb in _TELLING else 1 if action.verb in _TO_RANKS else 2
    return kind, action.planned_at, action.id


def _known(incident: Incident, snapshot: Snapshot) -> list[Finding]:
    return [snapshot.findings[name] for name in incident.findings if name in snapshot.findings]


def _live(incident: Incident, snapshot: Snapshot) -> list[Finding]:
    return [finding for finding in _known(incident, snapshot) if finding.active]


def nodes_of(chosen: Iterable[Incident], snapshot: Snapshot, roster: Roster, now: float) -> tuple[NodeView, ...]:
    """The nodes that these incidents are about, as they stand; none for what several share."""
    about = {incident.node: incident.id for incident in chosen if incident.node in snapshot.nodes}
    return tuple(node_line(snapshot.nodes[name], snapshot, roster.get(name), of, now) for name, of in about.items())


def in_order(blocked: Sequence[str], incidents: Sequence[Incident]) -> list[str]:
    """What blocks: all of the whole cluster, then what one incident waits for, in the order of the incidents."""
    place = {incident.id: number for number, incident in enumerate(incidents)}

    def key(sentence: str) -> int:
        one = of_one(sentence)
        return place.get(one.incident, -1) if one is not None else -1

    return sorted(blocked, key=key)


def cordoned(snapshot: Snapshot) -> NamedNodes:
    """The nodes that people keep from work in the scheduler."""
    holds = snapshot.holds.values()
    held = (hold.node for hold in holds if hold.schedulable is False and hold.owner is Owner.OPERATOR)
    return _named(name for name in held if name in snapshot.nodes and is_in_cluster(snapshot.nodes[name]))


def untended(snapshot: Snapshot, roster: Roster, now: float) -> NamedNodes:
    """The nodes that call themselves unhealthy and that no incident speaks of."""
    spoken_of = {incident.node for incident in snapshot.incidents.values()}
    found = (
        record.node
        for record in snapshot.nodes.values()
        if record.node not in spoken_of
        and is_in_cluster(record)
        and _health(roster, record.node, now) is Health.UNHEALTHY
    )
    return _named(found)


def _health(roster: Roster, node: str, now: float) -> Health:
    entry = roster.get(node)
    return entry.health_at(now) if entry is not None else Health.UNKNOWN


def heard(snapshot: Snapshot, roster: Roster, now: float) -> HeardView:
    """How much of what is shown is young."""
    entries = [roster.get(record.node) for record in snapshot.nodes.values() if is_in_cluster(record)]
    known = [entry for entry in entries if entry is not None]
    fresh = sum(now - entry.seen_at <= entry.ttl_s for entry in known)
    oldest = min((entry.seen_at for entry in known), default=None)
    return HeardView(len(entries), fresh, len(entries) - len(known), oldest)


def silenced(silences: Sequence[AlertSilence]) -> SilencedView:
    """How many silences hold."""
    return SilencedView(len(silences), min((silence.until for silence in silences), default=None))


def _named(nodes: Iterable[str]) -> NamedNodes:
    names = sorted(nodes)
    return NamedNodes(len(names), tuple(names[:NAMES_MAX]))

"""The cluster overview from the committed state: worst incidents, blocked automation, silent nodes. Bounded and pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import asdict

from remediator.api.record_views import incident_view, node_summary_view
from remediator.decisions.approval import list_proposed_stages
from remediator.decisions.policy import PolicyRule
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.blocked_reasons import parse_incident_blocker
from remediator.model.journal_records import Action, Decision, Incident, IncidentState
from remediator.model.override_records import AlertSilence
from remediator.model.plan_steps import NON_DISRUPTIVE
from remediator.model.scheduler_hold import HoldOwner
from remediator.model.views import NodeView
from remediator.model.views_overview import IncidentSummary, NamedNodes, ReportFreshness, SilencedView
from remediator.state.node_index import is_in_cluster
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.order import TRAINER_ORDERS

NAMES_MAX = 20
FINDINGS_MAX, ACTIONS_MAX = 20, 20  # per incident
_TO_RANKS = {kind.value for kind in TRAINER_ORDERS}


def order_worst_incidents(snapshot: StateSnapshot) -> list[Incident]:
    """Sort open incidents: real before drills, groups, severity, waiting for an operator, age."""

    def rank(incident: Incident) -> tuple[bool, bool, int, bool, float, str]:
        worst = max((finding.severity.rank for finding in _active_incident_findings(incident, snapshot)), default=-1)
        waits = incident.state is IncidentState.WAITING
        return incident.injected, incident.node in snapshot.nodes, -worst, not waits, incident.opened_at, incident.id

    return sorted(snapshot.incidents.values(), key=rank)


def incident_overviews(
    chosen: Sequence[Incident],
    snapshot: StateSnapshot,
    decisions: Mapping[str, Decision],
    rules: Mapping[str, PolicyRule],
) -> tuple[IncidentSummary, ...]:
    """Return each incident with its current details; `decisions` by id, as far as known."""
    actions: dict[str, list[Action]] = {incident.id: [] for incident in chosen}
    for action in snapshot.actions.values():
        if action.incident in actions:
            actions[action.incident].append(action)
    return tuple(
        _incident_overview(each, snapshot, actions[each.id], decisions.get(each.decision), rules) for each in chosen
    )


def _incident_overview(
    incident: Incident,
    snapshot: StateSnapshot,
    actions: Sequence[Action],
    decision: Decision | None,
    rules: Mapping[str, PolicyRule],
) -> IncidentSummary:
    live = sorted(
        _active_incident_findings(incident, snapshot), key=lambda each: (-each.severity.rank, each.first_seen, each.id)
    )
    ended = sorted((action for action in actions if action.state.final), key=_action_weight, reverse=True)
    decided = (decision,) if decision is not None else ()
    untold = [action.id for action in actions if action.untold]
    view = incident_view(incident, live[:FINDINGS_MAX], decided, ended[:ACTIONS_MAX], untold=untold)
    partly = not incident.injected and any(finding.injected for finding in _known_findings(incident, snapshot))
    known = asdict(view) | {"proposed": list_proposed_stages(incident, rules), "partly_injected": partly}
    left = max(0, len(live) - FINDINGS_MAX), max(0, len(ended) - ACTIONS_MAX)
    return IncidentSummary(**known, findings_more=left[0], actions_more=left[1])


def _action_weight(action: Action) -> tuple[int, float, str]:
    """Sort key: changes of a node first, notifications last, then the newest. A plan may have hundreds of actions."""
    kind = 0 if action.verb in NON_DISRUPTIVE else 1 if action.verb in _TO_RANKS else 2
    return kind, action.planned_at, action.id


def _known_findings(incident: Incident, snapshot: StateSnapshot) -> list[Finding]:
    return [snapshot.findings[name] for name in incident.findings if name in snapshot.findings]


def _active_incident_findings(incident: Incident, snapshot: StateSnapshot) -> list[Finding]:
    return [finding for finding in _known_findings(incident, snapshot) if finding.active]


def incident_node_views(
    chosen: Iterable[Incident], snapshot: StateSnapshot, registry: ReportRegistry, now: float
) -> tuple[NodeView, ...]:
    """Return the nodes that these incidents are about; none for group incidents."""
    about = {incident.node: incident.id for incident in chosen if incident.node in snapshot.nodes}
    return tuple(
        node_summary_view(snapshot.nodes[name], snapshot, registry.get(name), of, now) for name, of in about.items()
    )


def order_blocked_reasons(blocked: Sequence[str], incidents: Sequence[Incident]) -> list[str]:
    """Return blocking reasons: of the whole cluster first, then of incidents in their order."""
    place = {incident.id: number for number, incident in enumerate(incidents)}

    def key(sentence: str) -> int:
        one = parse_incident_blocker(sentence)
        return place.get(one.incident, -1) if one is not None else -1

    return sorted(blocked, key=key)


def operator_cordoned_nodes(snapshot: StateSnapshot) -> NamedNodes:
    """Return the nodes that operators have cordoned in the scheduler."""
    holds = snapshot.holds.values()
    held = (hold.node for hold in holds if hold.schedulable is False and hold.owner is HoldOwner.OPERATOR)
    return _named_nodes(name for name in held if name in snapshot.nodes and is_in_cluster(snapshot.nodes[name]))


def unhealthy_unassigned_nodes(snapshot: StateSnapshot, registry: ReportRegistry, now: float) -> NamedNodes:
    """Return self-reported unhealthy nodes without an incident."""
    spoken_of = {incident.node for incident in snapshot.incidents.values()}
    found = (
        record.node
        for record in snapshot.nodes.values()
        if record.node not in spoken_of
        and is_in_cluster(record)
        and _node_health(registry, record.node, now) is Health.UNHEALTHY
    )
    return _named_nodes(found)


def _node_health(registry: ReportRegistry, node: str, now: float) -> Health:
    entry = registry.get(node)
    return entry.health_at(now) if entry is not None else Health.UNKNOWN


def report_freshness_view(snapshot: StateSnapshot, registry: ReportRegistry, now: float) -> ReportFreshness:
    """Return how recent the reports are."""
    entries = [registry.get(record.node) for record in snapshot.nodes.values() if is_in_cluster(record)]
    known = [entry for entry in entries if entry is not None]
    fresh = sum(now - entry.seen_at <= entry.ttl_s for entry in known)
    oldest = min((entry.seen_at for entry in known), default=None)
    return ReportFreshness(len(entries), fresh, len(entries) - len(known), oldest)


def silence_summary(silences: Sequence[AlertSilence]) -> SilencedView:
    """Return how many silences are active."""
    return SilencedView(len(silences), min((silence.until for silence in silences), default=None))


def _named_nodes(nodes: Iterable[str]) -> NamedNodes:
    names = sorted(nodes)
    return NamedNodes(len(names), tuple(names[:NAMES_MAX]))

"""The cluster's status: counts, the mode, and everything that blocks automation, as text. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from remediator.decisions.approval import list_awaited_approvals
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import NAMED_MAX, level_max
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.blocked_reasons import IncidentBlocker, mode_sentence_prefix
from remediator.model.journal_records import BREAKER, Answer, IncidentState
from remediator.model.plan_steps import Mode
from remediator.model.views import StatusView
from remediator.overrides.cluster_overrides import effective_settings, find_mode_override
from remediator.state.node_index import is_in_cluster
from vocabulary.health import Health
from vocabulary.text.plurals import format_count


def status_view(
    cluster: str,
    version: str,
    settings: DecisionSettings,
    snapshot: StateSnapshot,
    registry: ReportRegistry,
    now: float,
) -> StatusView:
    """Build the status; the caller adds what only it knows."""
    settings = effective_settings(snapshot.operator_overrides, settings)
    entries = [registry.get(node) for node in snapshot.nodes]
    health = Counter((e.health_at(now) if e else Health.UNKNOWN).value for e in entries)
    return StatusView(
        cluster=cluster,
        version=version,
        mode=settings.mode.value,
        epoch=0,
        policy=f"{settings.policy.source} {settings.policy.digest}",
        at=now,
        nodes_total=len(snapshot.nodes),
        nodes_by_state=dict(sorted(Counter(n.state.value for n in snapshot.nodes.values()).items())),
        nodes_by_health=dict(sorted(health.items())),
        isolated=sum(n.held for n in snapshot.nodes.values()),
        isolated_max=level_max(settings.budget, sum(map(is_in_cluster, snapshot.nodes.values()))),
        incidents_open=len(snapshot.incidents),
        actions_open=sum(not a.state.final for a in snapshot.actions.values()),
        scheduler="",
        blocked=blocked_automation_reasons(settings, snapshot, registry, now),
        mode_by=_mode_origin_text(snapshot),
        breaker=next((i.title for i in snapshot.incidents.values() if i.node == BREAKER), ""),
    )


def _format_utc_second(at: float) -> str:
    """Format a UTC time, as all pages and commands do."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _mode_origin_text(snapshot: StateSnapshot) -> str:
    said = find_mode_override(snapshot.operator_overrides)
    return (
        f"{said.actor} since {_format_utc_second(said.since)}" + (f": {said.why}" if said.why else "")
        if said is not None
        else ""
    )


def blocked_automation_reasons(
    settings: DecisionSettings, snapshot: StateSnapshot, registry: ReportRegistry, now: float
) -> tuple[str, ...]:
    """List everything that blocks automation, as text; cluster-wide reasons first."""
    words = []
    if settings.mode is not Mode.ACT:
        by = _mode_origin_text(snapshot)
        shown = (
            "decisions are shown but not executed" if settings.mode is not Mode.APPROVE else "each plan needs approval"
        )
        words.append(f"{mode_sentence_prefix(settings.mode.value)}{f' (set by {by})' if by else ''}: {shown}")
    words += _shared_blocked_reasons(snapshot, registry, now)
    for incident in sorted(snapshot.incidents.values(), key=lambda i: i.opened_at):
        if incident.node == BREAKER:
            continue
        whys = [f"waits for approval of {a.text} ({a.id})" for a in list_awaited_approvals(incident)]
        if incident.answer is Answer.BLOCKED:
            whys.append("is held by a guard")
        if incident.state is IncidentState.WAITING:
            whys.append(f"needs a person: {incident.outcome}")
        words += [str(IncidentBlocker(incident.id, incident.node, why)) for why in whys]
    return tuple(words)


def _shared_blocked_reasons(snapshot: StateSnapshot, registry: ReportRegistry, now: float) -> Iterator[str]:
    for incident in snapshot.incidents.values():
        if incident.node == BREAKER:
            yield f"the breaker has been open since {_format_utc_second(incident.opened_at)}: {incident.title}"
    off = sorted(record.node for record in snapshot.nodes.values() if record.hands_off is not None)
    if off:
        yield f"operator hold on {format_count(len(off), 'node')}: {_name_nodes(off)}"
    known = [record.node for record in snapshot.nodes.values() if is_in_cluster(record)]
    silent = sorted(n for n in known if (e := registry.get(n)) is None or now - e.seen_at > e.ttl_s)
    if silent:
        are = "is" if len(silent) == 1 else "are"
        yield f"data is stale: {len(silent)} of {format_count(len(known), 'node')} {are} silent: {_name_nodes(silent)}"


def _name_nodes(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
    return ", ".join(nodes[:NAMED_MAX]) + more

"""Records to views: the committed state and the roster, as people read them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from datetime import datetime, timezone

from msgspec.structs import replace

from remediator.decide.approval import awaiting
from remediator.decide.budget import NAMED_MAX, level_max
from remediator.decide.settings import Settings
from remediator.decide.withheld import on_stop
from remediator.engine import Snapshot
from remediator.index import is_in_cluster
from remediator.model.blocking import OfOne, of_mode
from remediator.model.hold import NodeHold
from remediator.model.plan import Mode, StepRun, StepState, Verb
from remediator.model.records import (
    BREAKER,
    FOR_REPLACEMENT,
    Action,
    Answer,
    AuditEvent,
    Decision,
    Incident,
    IncidentState,
    NodeRecord,
)
from remediator.model.views import (
    ActionView,
    DecisionView,
    EventView,
    IncidentList,
    IncidentView,
    Lack,
    NodeList,
    NodeView,
    NoteView,
    StatusView,
    StepView,
)
from remediator.roster import Entry, Roster
from remediator.standing import in_force, mode_said
from vocabulary.counts import counted
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.wire import Versions


def node_view(record: NodeRecord, snapshot: Snapshot, roster: Roster, now: float) -> NodeView:
    """One node, whole."""
    incident = next((i.id for i in snapshot.incidents.values() if i.node == record.node), "")
    entry = roster.get(record.node)
    findings = [f for f in snapshot.findings.values() if f.node == record.node and f.active]
    return replace(
        _node_line(record, snapshot, entry, incident, now),
        gpus=entry.gpus if entry else (),
        ranks=entry.ranks if entry else (),
        findings=tuple(sorted(findings, key=lambda f: (f.first_seen, f.id))),
    )


def node_list(snapshot: Snapshot, roster: Roster, now: float, after: str, limit: int) -> NodeList:
    """So many nodes with names after `after`, by name, each without GPUs, ranks and findings."""
    names = sorted(name for name in snapshot.nodes if name > after)[:limit]
    incidents = {incident.node: incident.id for incident in snapshot.incidents.values()}
    return NodeList(
        tuple(
            _node_line(snapshot.nodes[name], snapshot, roster.get(name), incidents.get(name, ""), now) for name in names
        )
    )


def _node_line(record: NodeRecord, snapshot: Snapshot, entry: Entry | None, incident: str, now: float) -> NodeView:
    hold = snapshot.holds.get(record.node)
    return NodeView(
        node=record.node,
        state=record.state.value,
        health=(entry.health_at(now) if entry else Health.UNKNOWN).value,
        since=record.since,
        why=record.cause,
        last_seen=entry.seen_at if entry else None,
        incident=incident,
        held_by=_holder(hold),
        jobs=tuple(ref.job for ref in record.jobs),
        hands_off=record.hands_off,
        versions=entry.versions if entry else Versions(),
    )


def _holder(hold: NodeHold | None) -> str:
    if hold is None or hold.schedulable:
        return ""
    return "?" if hold.schedulable is None else hold.owner.value


def incident_view(
    incident: Incident,
    findings: Sequence[Finding] = (),
    decisions: Sequence[Decision] = (),
    actions: Sequence[Action] = (),
    events: Sequence[AuditEvent] = (),
) -> IncidentView:
    """One incident with what belongs to it."""
    return IncidentView(
        id=incident.id,
        node=incident.node,
        state=incident.state.value,
        title=incident.title,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at,
        outcome=incident.outcome,
        injected=incident.injected,
        acknowledged_by=incident.acknowledged_by,
        acknowledged_at=incident.acknowledged_at,
        notes=tuple(NoteView(e.at, e.actor, str(e.data.get("note", ""))) for e in events if e.kind == "note"),
        awaits=awaiting(incident),
        steps=_steps(incident, actions),
        findings=tuple(findings),
        decisions=tuple(
            DecisionView(d.id, d.at, d.answer.value, d.rule, d.reason, d.policy, d.guards, d.considered)
            for d in decisions
        ),
        actions=tuple(action_view(a) for a in actions),
        waits_for_part=_waits_for_part(incident),
        partly_injected=not incident.injected and any(finding.injected for finding in findings),
    )


def incident_lines(incidents: Sequence[Incident], injected: Container[str]) -> IncidentList:
    """Many incidents, without what belongs to them. `injected` are the ids of findings that are test faults."""
    return IncidentList(
        tuple(
            replace(incident_view(i), partly_injected=not i.injected and any(f in injected for f in i.findings))
            for i in incidents
        )
    )


def _steps(incident: Incident, actions: Sequence[Action]) -> tuple[StepView, ...]:
    untold = {action.id for action in actions if action.untold}

    def lacks(run: StepRun) -> Lack:
        if run.state is not StepState.SUCCEEDED:
            return Lack.NOTHING
        if run.step.verb is Verb.REPLACE and _waits_for_part(incident):
            return Lack.PART
        return Lack.TOLD_NOBODY if run.actions and untold.issuperset(run.actions) else Lack.NOTHING

    runs = [run for stage in incident.plan for run in stage]
    return tuple(StepView(str(run.step), run.state.value, run.detail, lacks(run)) for run in runs)


def _waits_for_part(incident: Incident) -> bool:
    return incident.state is IncidentState.WAITING and incident.outcome == FOR_REPLACEMENT


def action_view(action: Action) -> ActionView:
    """One action."""
    return ActionView(
        id=action.id,
        verb=action.verb,
        node=action.node,
        state=action.state.value,
        planned_at=action.planned_at,
        deadline=action.deadline,
        finished_at=action.finished_at,
        attempts=action.attempts,
        detail=action.detail,
        data=action.data,
        incident=action.incident,
        why=action.reason,
        on_stop="" if action.state.final else on_stop(action).value,
        lacks=Lack.TOLD_NOBODY if action.untold else Lack.NOTHING,
    )


def event_view(seq: int, event: AuditEvent) -> EventView:
    """One line of the audit log."""
    return EventView(
        seq=seq,
        at=event.at,
        kind=event.kind,
        actor=event.actor,
        text=event.text,
        node=event.node,
        incident=event.incident,
        injected=event.injected,
        data=event.data,
    )


def status_view(
    cluster: str,
    version: str,
    settings: Settings,
    snapshot: Snapshot,
    roster: Roster,
    now: float,
) -> StatusView:
    """The cluster in one look; the caller adds what only it knows."""
    settings = in_force(snapshot.standing, settings)
    entries = [roster.get(node) for node in snapshot.nodes]
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
        blocked=blocked(settings, snapshot, roster, now),
        mode_by=_mode_by(snapshot),
        breaker=next((i.title for i in snapshot.incidents.values() if i.node == BREAKER), ""),
    )


def _second(at: float) -> str:
    """UTC, as every page and command tells it."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _mode_by(snapshot: Snapshot) -> str:
    said = mode_said(snapshot.standing)
    return (
        f"{said.actor} since {_second(said.since)}" + (f": {said.why}" if said.why else "") if said is not None else ""
    )


def blocked(settings: Settings, snapshot: Snapshot, roster: Roster, now: float) -> tuple[str, ...]:
    """Everything that keeps automation from acting, in words; what concerns the whole cluster first."""
    words = []
    if settings.mode is not Mode.ACT:
        by = _mode_by(snapshot)
        shown = (
            "decisions are shown, not carried out" if settings.mode is not Mode.APPROVE else "people approve each plan"
        )
        words.append(f"{of_mode(settings.mode.value)}{f' (set by {by})' if by else ''}: {shown}")
    words += _of_many(snapshot, roster, now)
    for incident in sorted(snapshot.incidents.values(), key=lambda i: i.opened_at):
        if incident.node == BREAKER:
            continue
        whys = [f"waits for approval of {a.text} ({a.id})" for a in awaiting(incident)]
        if incident.answer is Answer.HOLD:
            whys.append("is held back by a guard")
        if incident.state is IncidentState.WAITING:
            whys.append(f"waits for a person: {incident.outcome}")
        words += [str(OfOne(incident.id, incident.node, why)) for why in whys]
    return tuple(words)


def _of_many(snapshot: Snapshot, roster: Roster, now: float) -> Iterator[str]:
    for incident in snapshot.incidents.values():
        if incident.node == BREAKER:
            yield f"the breaker is open since {_second(incident.opened_at)}: {incident.title}"
    off = sorted(record.node for record in snapshot.nodes.values() if record.hands_off is not None)
    if off:
        yield f"people keep us off {counted(len(off), 'node')}: {_named(off)}"
    known = [record.node for record in snapshot.nodes.values() if is_in_cluster(record)]
    silent = sorted(n for n in known if (e := roster.get(n)) is None or now - e.seen_at > e.ttl_s)
    if silent:
        are = "is" if len(silent) == 1 else "are"
        yield f"data is stale: {len(silent)} of {counted(len(known), 'node')} {are} not heard now: {_named(silent)}"


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
    return ", ".join(nodes[:NAMED_MAX]) + more

"""Views of records: the committed state and the report registry. Pure."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from remediator.decisions.approval import list_awaited_approvals
from remediator.decisions.mode_stop import stop_effect
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportEntry, ReportRegistry
from remediator.incidents.reopen_rules import settlement_expiry
from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import (
    FOR_REPLACEMENT,
    Action,
    AuditEvent,
    Decision,
    Incident,
    IncidentState,
    NodeRecord,
)
from remediator.model.plan_steps import StepRun, StepState, Verb
from remediator.model.scheduler_hold import SchedulerNodeState
from remediator.model.views import (
    ActionView,
    DecisionView,
    EventView,
    IncidentList,
    IncidentView,
    MissingOutcome,
    NodeList,
    NodeView,
    NoteView,
    SettlementView,
    StepView,
)
from vocabulary.finding import Finding
from vocabulary.health import Health
from vocabulary.messages.wire import Versions
from vocabulary.order import OrderState


def node_view(record: NodeRecord, snapshot: StateSnapshot, registry: ReportRegistry, now: float) -> NodeView:
    """Build one node's view in full."""
    incident = next((i.id for i in snapshot.incidents.values() if i.node == record.node), "")
    entry = registry.get(record.node)
    findings = [f for f in snapshot.findings.values() if f.node == record.node and f.active]
    return replace(
        node_summary_view(record, snapshot, entry, incident, now),
        gpus=entry.gpus if entry else (),
        ranks=entry.whole_ranks() if entry else (),
        findings=tuple(sorted(findings, key=lambda f: (f.first_seen, f.id))),
    )


def node_list_view(snapshot: StateSnapshot, registry: ReportRegistry, now: float, after: str, limit: int) -> NodeList:
    """Build up to so many nodes after `after`, by name, without GPUs, ranks and findings."""
    names = sorted(name for name in snapshot.nodes if name > after)[:limit]
    incidents = {incident.node: incident.id for incident in snapshot.incidents.values()}
    return NodeList(
        tuple(
            node_summary_view(snapshot.nodes[name], snapshot, registry.get(name), incidents.get(name, ""), now)
            for name in names
        )
    )


def node_summary_view(
    record: NodeRecord, snapshot: StateSnapshot, entry: ReportEntry | None, incident: str, now: float
) -> NodeView:
    """Build one node's view without GPUs, ranks and findings; `incident` is the id of its open one."""
    hold = snapshot.holds.get(record.node)
    return NodeView(
        node=record.node,
        state=record.state.value,
        health=(entry.health_at(now) if entry else Health.UNKNOWN).value,
        since=record.since,
        why=record.cause,
        last_seen=entry.seen_at if entry else None,
        incident=incident,
        held_by=_hold_owner_text(hold),
        jobs=tuple(ref.job for ref in record.jobs),
        hands_off=record.hands_off,
        versions=entry.versions if entry else Versions(),
    )


def _hold_owner_text(hold: SchedulerNodeState | None) -> str:
    if hold is None or hold.schedulable:
        return ""
    return "?" if hold.schedulable is None else hold.owner.value


def incident_view(
    incident: Incident,
    findings: Sequence[Finding] = (),
    decisions: Sequence[Decision] = (),
    actions: Sequence[Action] = (),
    events: Sequence[AuditEvent] = (),
    untold: Collection[str] = (),
) -> IncidentView:
    """Build an incident's view in full. `untold`: ids of undelivered actions, besides those among `actions`."""
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
        awaits=list_awaited_approvals(incident),
        steps=_step_views(incident, {action.id for action in actions if action.untold}.union(untold)),
        findings=tuple(findings),
        decisions=tuple(
            DecisionView(d.id, d.at, d.answer.value, d.rule, d.reason, d.policy, d.guards, d.considered)
            for d in decisions
        ),
        actions=tuple(action_view(a) for a in actions),
        waits_for_part=_awaits_part(incident),
        partly_injected=not incident.injected and any(finding.injected for finding in findings),
    )


def settlement_view(
    findings: Sequence[Finding], words: Mapping[str, Settlement], nodes: Mapping[str, NodeRecord], after_s: float
) -> SettlementView | None:
    """Build the operator's last settlement of active findings; `words` by finding, `after_s`: how long they count."""
    last = max(words.values(), key=lambda word: word.at, default=None)
    if last is None:
        return None
    ends = [
        settlement_expiry(finding, words[finding.id], nodes[finding.node].state, after_s)
        for finding in findings
        if finding.id in words and finding.node in nodes
    ]
    return SettlementView(last.said, last.at, min((end for end in ends if end is not None), default=None))


def incident_list_view(
    incidents: Sequence[Incident], injected: Container[str], untold: Collection[str] = ()
) -> IncidentList:
    """Build views of many incidents, without details.

    `injected`: ids of findings from test faults; `untold`: of undelivered actions.
    """
    return IncidentList(
        tuple(
            replace(
                incident_view(i, untold=untold),
                partly_injected=not i.injected and any(f in injected for f in i.findings),
            )
            for i in incidents
        )
    )


def _step_views(incident: Incident, untold: AbstractSet[str]) -> tuple[StepView, ...]:
    def lacks(run: StepRun) -> MissingOutcome:
        if run.state is not StepState.SUCCEEDED:
            return MissingOutcome.NOTHING
        if run.step.verb is Verb.REPLACE and _awaits_part(incident):
            return MissingOutcome.PART
        return MissingOutcome.TOLD_NOBODY if run.actions and untold >= set(run.actions) else MissingOutcome.NOTHING

    runs = [run for stage in incident.plan for run in stage]
    return tuple(StepView(str(run.step), run.state.value, run.detail, lacks(run)) for run in runs)


def _awaits_part(incident: Incident) -> bool:
    return incident.state is IncidentState.WAITING and incident.outcome == FOR_REPLACEMENT


def action_view(action: Action) -> ActionView:
    """Build one action's view."""
    runs = action.began_at is not None and not action.state.final
    return ActionView(
        id=action.id,
        verb=action.verb,
        node=action.node,
        state=OrderState.RUNNING.value if runs else action.state.value,
        planned_at=action.planned_at,
        deadline=action.deadline,
        finished_at=action.finished_at,
        attempts=action.attempts,
        detail=action.detail,
        data=action.data,
        incident=action.incident,
        why=action.reason,
        on_stop="" if action.state.final else stop_effect(action).value,
        lacks=MissingOutcome.TOLD_NOBODY if action.untold else MissingOutcome.NOTHING,
        began_at=action.began_at,
    )


def event_view(seq: int, event: AuditEvent) -> EventView:
    """Build the view of one audit event."""
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

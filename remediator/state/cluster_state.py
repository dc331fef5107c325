"""The state that every decision depends on, and the record of what one input changed in it.

Only the pipeline changes the state; the records in it are frozen. No clock and no store here: `remediator.store` loads
it at start and writes each `StateChanges` in one transaction.
"""

from __future__ import annotations

import dataclasses
from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from functools import reduce

from msgspec.structs import replace

from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import (
    BREAKER,
    BUILT_IN,
    Action,
    Answer,
    AuditEvent,
    Decision,
    Facts,
    Incident,
    IncidentState,
    NodeRecord,
)
from remediator.model.node_location import NodeLocation, merge_locations
from remediator.model.occurrence import Occurrence
from remediator.model.override_records import OperatorOverride
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import SchedulerNodeState
from remediator.state.incident_reviews import IncidentReviews
from remediator.state.job_index import JobIndex
from remediator.state.node_index import NodeIndex
from remediator.state.occurrence_history import OccurrenceHistory
from remediator.state.recent_failures import (
    CAUSE_OVER,
    RESET,
    SUSPECTED,
    FailureStreak,
    SuspectIndex,
    closed_group_kind,
)
from remediator.state.state_changes import StateChanges
from remediator.state.unanswered_actions import UnansweredActions
from vocabulary.finding import Finding, Severity

RETURNED = "node/returned"  # we returned it to service; it is on probation
REPAIRED = "node/repaired"  # an operator returned it after a replacement
ISOLATION = "node/isolated"  # in history: a node in service was isolated
EJECT = "node/ejected"  # in history: its jobs were ordered to continue without a node
PREVIOUS_TERM = ""  # source of locations from earlier terms: every other goes before it, and the file ends it
CONTEXT_S = 300.0  # what was seen so recently is current context
SHOWN_S = 86400.0  # how long operators can see a decision that rests on findings nothing asserts (info)
QUIET_S = 900.0  # an info finding, seen but never asserted, counts as ended when it was not seen for so long
NEEDS_OPERATOR = {Answer.BLOCKED, Answer.APPROVE, Answer.RECOMMEND}


@dataclasses.dataclass
class ClusterState:
    """All that decisions depend on: nodes, findings, open incidents with their actions, holds, and history."""

    nodes: dict[str, NodeRecord] = dataclasses.field(default_factory=dict)
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)
    incidents: dict[str, Incident] = dataclasses.field(default_factory=dict)
    actions: dict[str, Action] = dataclasses.field(default_factory=dict)
    settled: dict[str, Settlement] = dataclasses.field(default_factory=dict)  # finding → its settlement
    isolated_at: list[float] = dataclasses.field(default_factory=list)
    holds: dict[str, SchedulerNodeState] = dataclasses.field(default_factory=dict)
    operator_overrides: dict[str, OperatorOverride] = dataclasses.field(default_factory=dict)
    topology: dict[str, dict[str, NodeLocation]] = dataclasses.field(default_factory=dict)  # source → node → location
    history: OccurrenceHistory = dataclasses.field(default_factory=OccurrenceHistory)
    changes: StateChanges = dataclasses.field(default_factory=StateChanges)
    job_index: JobIndex = dataclasses.field(default_factory=JobIndex)
    index: NodeIndex = dataclasses.field(default_factory=NodeIndex)
    suspects: SuspectIndex = dataclasses.field(default_factory=SuspectIndex)
    streak: FailureStreak = dataclasses.field(default_factory=FailureStreak)
    unanswered_actions: UnansweredActions = dataclasses.field(default_factory=UnansweredActions, compare=False)
    reviews: IncidentReviews = dataclasses.field(default_factory=IncidentReviews, compare=False)
    notified_steps: set[str] = dataclasses.field(default_factory=set, compare=False)  # steps that ordered whole jobs
    _wide: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)  # incident → its members
    _wide_of: dict[str, set[str]] = dataclasses.field(default_factory=dict)
    _on_node: dict[str, dict[str, Finding]] = dataclasses.field(default_factory=dict)
    _critical_counts: Counter[str] = dataclasses.field(default_factory=Counter)  # how many of them are critical
    _incident_on: dict[str, str] = dataclasses.field(default_factory=dict)
    _actions_of: dict[str, list[str]] = dataclasses.field(default_factory=dict)

    @classmethod
    def restored(
        cls,
        nodes: Iterable[NodeRecord],
        findings: Iterable[Finding],
        incidents: Iterable[Incident],
        actions: Iterable[Action],
        occurrences: Iterable[Occurrence],
        settled: Iterable[tuple[str, Settlement]] = (),
        operator_overrides: Iterable[tuple[str, OperatorOverride]] = (),
    ) -> ClusterState:
        """Build the state from stored rows; nothing counts as changed."""
        state = cls(settled=dict(settled), operator_overrides=dict(operator_overrides))
        for node in nodes:
            state.put_node(node)
        state.topology[PREVIOUS_TERM] = {name: node.places for name, node in state.nodes.items()}
        for finding in findings:
            state.put_finding(finding)
        for incident in incidents:
            state.put_incident(incident)
        for action in actions:
            state.put_action(action)
        for occurrence in occurrences:
            state._count(occurrence)
            if occurrence.kind == ISOLATION:
                insort(state.isolated_at, occurrence.at)
        state.changes = StateChanges()
        return state

    def take_changes(self) -> StateChanges:
        """Return everything changed since the last call."""
        changes, self.changes = self.changes, StateChanges()
        touched = (*changes.findings, *changes.settled)
        changes.settled = {finding: self.settled.get(finding) for finding in touched}
        return changes

    def put_node(self, node: NodeRecord) -> None:
        """Store a node; a change of state is audited."""
        before = self.nodes.get(node.node)
        if before == node:
            return
        self.nodes[node.node] = self.changes.nodes[node.node] = node
        if self.job_index.put(before.jobs if before is not None else (), node):
            self.notified_steps.clear()
        self.index.put(before, node, self._in_service(node.node))
        self.reviews.follow_node(self._incident_on.get(node.node, ""), before, node)
        self.reviews.follow_free_nodes(len(self.index.free))
        if before is None:
            self.note(node.since, "node_joined", f"{node.node} reported for the first time", node=node.node)
        elif before.state is not node.state:
            if before.state is NodeState.REPLACING and node.state is NodeState.PROBATION:
                self.remember(Occurrence(node.since, REPAIRED, node.node))
            text = f"{node.node}: {before.state.value} → {node.state.value} ({node.cause})"
            self.note(
                node.since,
                "node_state",
                text,
                node=node.node,
                incident=self.incident_of(node.node),
                data={"from": before.state.value, "to": node.state.value},
            )

    def put_finding(self, finding: Finding) -> None:
        """Store a finding as it is now."""
        self.reviews.touch(self._incident_on.get(finding.node, ""))
        before = self.findings.get(finding.id)
        self.findings[finding.id] = self.changes.findings[finding.id] = finding
        self._on_node.setdefault(finding.node, {})[finding.id] = finding
        critical_change = _is_critical(finding) - (before is not None and _is_critical(before))
        self._critical_counts[finding.node] += critical_change
        if critical_change:
            self._weigh(finding.node)

    def forget_finding(self, finding_id: str) -> None:
        """Drop a finding to which nothing refers; its row stays."""
        finding = self.findings.pop(finding_id)
        self._on_node[finding.node].pop(finding_id)
        self._critical_counts[finding.node] -= _is_critical(finding)
        self.settled.pop(finding_id, None)

    def unsettle(self, finding_id: str) -> None:
        """Remove a finding's settlement: as long as it is active, it has an incident again."""
        if self.settled.pop(finding_id, None) is not None:
            self.changes.settled[finding_id] = None

    def settle(self, finding_id: str, by: Settlement) -> None:
        """Store a finding's settlement."""
        self.settled[finding_id] = self.changes.settled[finding_id] = by
        if finding_id in self.findings:
            self.reviews.touch(self._incident_on.get(self.findings[finding_id].node, ""))

    def put_incident(self, incident: Incident) -> None:
        """Store an incident; a closed one leaves the state, and its findings are settled."""
        if incident.wide and incident.policy == BUILT_IN and incident.state is IncidentState.CLOSED:
            incident = replace(incident, findings=())  # the nodes' own findings, which this does not settle
        self.reviews.follow_incident(self.incidents.get(incident.id), incident, held=incident.node in self.held)
        self.changes.incidents[incident.id] = incident
        if incident.state is not IncidentState.CLOSED:
            if incident.id not in self.incidents:  # new or reopened
                self.changes.settled |= dict.fromkeys(incident.findings)
            self.incidents[incident.id] = incident
            self._incident_on[incident.node] = incident.id
            if incident.wide:
                self._index_wide(incident.id, incident.members)
            return
        self.incidents.pop(incident.id, None)
        if incident.wide:
            self._index_wide(incident.id, ())
            self._wide.pop(incident.id, None)
        self._incident_on.pop(incident.node, None)
        self.job_index.forget_orders(incident.id)
        by = Settlement(incident.id, incident.ended_by, (incident.closed_at or 0.0) if incident.ended_by else 0.0)
        for finding_id in incident.findings:
            self.settle(finding_id, by)
        for action_id in self._actions_of.pop(incident.id, ()):
            del self.actions[action_id]
        if incident.node == BREAKER:  # even if an operator closed it
            self.remember(Occurrence(incident.closed_at or 0.0, RESET, BREAKER, incident=incident.id))
        elif incident.wide:
            at, drill, word = incident.closed_at or 0.0, incident.injected, incident.ended_by
            self.remember(
                Occurrence(at, closed_group_kind(incident), incident.node, word, incident=incident.id, injected=drill)
            )

    def put_operator_override(self, name: str, said: OperatorOverride | None) -> None:
        """Store an operator's override for the whole cluster; None ends it."""
        if said is None:
            self.operator_overrides.pop(name, None)
        else:
            self.operator_overrides[name] = said
        self.changes.operator_overrides[name] = said

    def put_action(self, action: Action) -> None:
        """Store an action. An operator's manual action belongs to no incident, and is dropped when it ends."""
        self.reviews.touch(action.incident)
        if not action.incident:
            self.changes.actions[action.id] = action
            if action.state.final:
                self.actions.pop(action.id, None)
            else:
                self.actions[action.id] = action
            return
        before = self.actions.get(action.id)
        if before is None:
            self._actions_of.setdefault(action.incident, []).append(action.id)
            self.job_index.put_order(action)
        elif not before.state.final and (said := self.streak.said_by(action)) is not None:
            self.remember(said)
        self.actions[action.id] = self.changes.actions[action.id] = action

    def remember(self, occurrence: Occurrence) -> None:
        """Record an occurrence that rules may count."""
        self._count(occurrence)
        self.changes.occurrences.append(occurrence)
        self.reviews.touch(self._incident_on.get(occurrence.node, ""))
        self.reviews.follow_occurrence(occurrence, in_budget=occurrence.kind in (ISOLATION, EJECT))

    def _count(self, occurrence: Occurrence) -> None:
        self.history.add(occurrence)
        self.streak.take(occurrence)
        if occurrence.kind == SUSPECTED and occurrence.node in self.nodes:
            self.suspects.take(occurrence, self.nodes[occurrence.node].places.keys)
        elif occurrence.kind == CAUSE_OVER:
            self.suspects.over(occurrence.node, drill=occurrence.injected)

    def remember_occurrence(self, at: float, kind: str, incident: Incident, component: str = "") -> None:
        """Record an action of ours as an occurrence of its incident."""
        jobs, width = self.jobs_on(incident.node), self.widest_job_on(incident.node)
        self.remember(
            Occurrence(
                at, kind, incident.node, component, jobs, width, incident=incident.id, injected=incident.injected
            )
        )

    def put_decision(self, decision: Decision) -> None:
        """Store a decision; decisions never change afterwards."""
        self.changes.decisions[decision.id] = decision

    def note(
        self,
        at: float,
        kind: str,
        text: str,
        *,
        node: str = "",
        incident: Incident | None = None,
        injected: bool | None = None,
        data: Facts | None = None,
    ) -> None:
        """Add an audit event; what an injected fault causes is marked too, unless `injected` is given."""
        event = AuditEvent(
            at=at,
            kind=kind,
            text=text,
            node=node or (incident.node if incident else ""),
            incident=incident.id if incident else "",
            injected=bool(incident and incident.injected) if injected is None else injected,
            data=data or {},
        )
        self.changes.audit.append(event)

    def places_of(self, node: str) -> NodeLocation:
        """Return a node's location from all sources; of several, the last by name counts."""
        told = (source[node] for _, source in sorted(self.topology.items()) if node in source)
        return reduce(merge_locations, told, NodeLocation())

    def put_hold(self, hold: SchedulerNodeState) -> None:
        """Store the scheduler's answer for a node."""
        self.holds[hold.node] = hold
        self.reviews.touch(self._incident_on.get(hold.node, ""))
        self._weigh(hold.node)

    def _weigh(self, node: str) -> None:
        if node not in self.nodes:
            return
        self.index.weigh(self.nodes[node], self._in_service(node))
        self.reviews.follow_free_nodes(len(self.index.free))

    def _in_service(self, node: str) -> SchedulerNodeState | None:
        """Return the scheduler's answer for a node that may replace another: not while it asserts a critical fault."""
        return None if self._critical_counts[node] else self.holds.get(node)

    def forget_hold(self, node: str) -> None:
        """Drop the scheduler's answer for a node: it is outdated, and no newer one has arrived."""
        self.holds.pop(node, None)
        self.reviews.touch(self._incident_on.get(node, ""))
        self._weigh(node)

    def _index_wide(self, incident_id: str, members: Iterable[str]) -> None:
        before, after = self._wide.get(incident_id, frozenset()), frozenset(members)
        for node in after - before:
            self._wide_of.setdefault(node, set()).add(incident_id)
        for node in before - after:
            self._wide_of[node].discard(incident_id)
        for node in after ^ before:
            self.reviews.touch(self._incident_on.get(node, ""))
        self._wide[incident_id] = after

    def wide_of(self, node: str) -> list[Incident]:
        """Return open group incidents that have this one as a member, by id."""
        return [self.incidents[i] for i in sorted(self._wide_of.get(node, ()))]

    def wide(self) -> list[Incident]:
        """Return open group incidents by id."""
        return [self.incidents[i] for i in sorted(self._wide)]

    def nodes_of_job(self, job: str) -> list[str]:
        """Return the names of nodes with ranks of any attempt of a job."""
        return self.job_index.nodes_of(job)

    @property
    def held(self) -> AbstractSet[str]:
        """Return the names of nodes that we hold out of service."""
        return self.index.held

    def nodes_in(self, state: NodeState) -> list[NodeRecord]:
        """Return the nodes in a lifecycle state, by name."""
        return [self.nodes[name] for name in sorted(self.index.in_state(state))]

    def incident_of(self, node: str) -> Incident | None:
        """Return the open incident of a node; there is at most one."""
        return self.incidents.get(self._incident_on.get(node, ""))

    def findings_of(self, incident: Incident) -> list[Finding]:
        """Return the findings of an incident that are still known, in the order they joined."""
        return [self.findings[f] for f in incident.findings if f in self.findings]

    def live_findings_of(self, incident: Incident, now: float) -> list[Finding]:
        """Return the findings that need a reaction: active ones or, for info, those seen just now.

        One that waits for an operator stays until they had time to see it.
        """
        shown_s = SHOWN_S if incident.answer in NEEDS_OPERATOR else CONTEXT_S
        return [
            f
            for f in self.findings_of(incident)
            if (f.active if f.severity is not Severity.INFO else now - f.last_seen <= shown_s)
        ]

    def actions_of(self, incident: Incident) -> list[Action]:
        """Return the actions of an open incident, in planned order."""
        return [self.actions[a] for a in self._actions_of.get(incident.id, ())]

    def findings_on(self, node: str) -> Collection[Finding]:
        """Return the known findings of a node, active or not."""
        return self._on_node.get(node, {}).values()

    def active_on(self, node: str) -> list[Finding]:
        """Return the active findings of a node, by id."""
        return sorted((f for f in self.findings_on(node) if f.active), key=lambda f: f.id)

    def critical_findings_on(self, node: str) -> list[Finding]:
        """Return active findings that keep new work off a node (error, fatal), by id."""
        return sorted((f for f in self.findings_on(node) if _is_critical(f)), key=lambda f: f.id)

    def jobs_on(self, node: str) -> tuple[str, ...]:
        """Return the names of jobs with ranks on a node, each once."""
        return tuple(dict.fromkeys(ref.job for ref in self.nodes[node].jobs))

    def widest_job_on(self, node: str) -> int:
        """Return the node count of the widest job with ranks on a node."""
        return max(map(self.job_index.width_of, self.nodes[node].jobs), default=0)


def _is_critical(finding: Finding) -> bool:
    return finding.active and finding.severity.rank >= Severity.ERROR.rank

"""The projection every decision is a function of, and the record of what one input changed in it.

The state is mutable and owned by the pipeline alone; the records in it are frozen. Nothing here knows a clock or a
store: `remediator.store` loads it at start and writes each `Changes` in one transaction.
"""

from __future__ import annotations

import dataclasses

from remediator.model.hold import NodeHold
from remediator.model.records import Action, AuditEvent, Decision, Facts, Incident, IncidentState, NodeRecord
from vocabulary.finding import Finding


@dataclasses.dataclass
class Changes:
    """What one input did: rows to write, in one transaction, and lines for the audit log."""

    nodes: dict[str, NodeRecord] = dataclasses.field(default_factory=dict)
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)
    incidents: dict[str, Incident] = dataclasses.field(default_factory=dict)
    decisions: dict[str, Decision] = dataclasses.field(default_factory=dict)
    actions: dict[str, Action] = dataclasses.field(default_factory=dict)
    audit: list[AuditEvent] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.nodes or self.findings or self.incidents or self.decisions or self.actions or self.audit)


@dataclasses.dataclass
class ClusterState:
    """All that decisions depend on: nodes, findings, open incidents with their actions, holds."""

    nodes: dict[str, NodeRecord] = dataclasses.field(default_factory=dict)
    findings: dict[str, Finding] = dataclasses.field(default_factory=dict)
    incidents: dict[str, Incident] = dataclasses.field(default_factory=dict)
    actions: dict[str, Action] = dataclasses.field(default_factory=dict)
    settled: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # finding → the closed incident that dealt with it
    isolated_at: list[float] = dataclasses.field(default_factory=list)
    holds: dict[str, NodeHold] = dataclasses.field(default_factory=dict)
    changes: Changes = dataclasses.field(default_factory=Changes)

    def take_changes(self) -> Changes:
        """Everything changed since the last call."""
        changes, self.changes = self.changes, Changes()
        return changes

    def put_node(self, node: NodeRecord) -> None:
        """Store a node; a change of state is audited."""
        before = self.nodes.get(node.node)
        if before == node:
            return
        self.nodes[node.node] = self.changes.nodes[node.node] = node
        if before is None:
            self.note(node.since, "node_joined", f"{node.node} reported for the first time", node=node.node)
        elif before.state is not node.state:
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
        """Store a finding as it stands now."""
        self.findings[finding.id] = self.changes.findings[finding.id] = finding

    def put_incident(self, incident: Incident) -> None:
        """Store an incident; a closed one leaves the state, and its findings are settled."""
        self.changes.incidents[incident.id] = incident
        if incident.state is not IncidentState.CLOSED:
            self.incidents[incident.id] = incident
            return
        self.incidents.pop(incident.id, None)
        self.settled.update(dict.fromkeys(incident.findings, incident.id))
        for action_id in [a.id for a in self.actions.values() if a.incident == incident.id]:
            del self.actions[action_id]

    def put_action(self, action: Action) -> None:
        """Store an action as it stands now."""
        self.actions[action.id] = self.changes.actions[action.id] = action

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
        injected: bool = False,
        data: Facts | None = None,
    ) -> None:
        """Add a line to the audit log; what an injected fault causes is marked as injected too."""
        event = AuditEvent(
            at=at,
            kind=kind,
            text=text,
            node=node or (incident.node if incident else ""),
            incident=incident.id if incident else "",
            injected=injected or (incident.injected if incident else False),
            data=data or {},
        )
        self.changes.audit.append(event)

    def incident_of(self, node: str) -> Incident | None:
        """The open incident of a node; there is at most one."""
        return next((i for i in self.incidents.values() if i.node == node), None)

    def findings_of(self, incident: Incident) -> list[Finding]:
        """The findings of an incident that are still known, in the order they joined."""
        return [self.findings[f] for f in incident.findings if f in self.findings]

    def active_on(self, node: str) -> list[Finding]:
        """Active findings of a node, by id."""
        return sorted((f for f in self.findings.values() if f.node == node and f.active), key=lambda f: f.id)

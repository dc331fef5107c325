"""What a step of a plan may read and write: the state, its incident, its place in the plan, the time."""

from __future__ import annotations

import hashlib
import re

import msgspec
from msgspec.structs import replace

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.decisions.node_lifecycle import transition_node
from remediator.model.journal_records import Action, ActionState, Facts, Incident, NodeRecord
from remediator.model.plan_steps import StepRun, StepState, step_key
from remediator.model.rule_conditions import NodeState
from remediator.state.cluster_state import ClusterState
from vocabulary.finding import Finding
from vocabulary.order import Order, OrderKind

_PLAIN = re.compile(r"[A-Za-z0-9._-]{0,300}")
LEGIBLE_MAX = 60


class StepContext(msgspec.Struct, frozen=True):
    """What a step function may read: the state, its incident, its place in the plan, the time."""

    state: ClusterState
    incident: Incident
    stage: int
    index: int
    now: float
    budget: IsolationBudget

    @property
    def node(self) -> NodeRecord:
        """The node the incident is about."""
        return self.state.nodes[self.incident.node]

    def enter(self, to: NodeState) -> None:
        """Move the node to a lifecycle state because of this incident."""
        self.state.put_node(transition_node(self.node, to, self.now, f"{self.incident.id}: {self.incident.rule}"))

    def because(self) -> Finding | None:
        """The most severe known finding of the incident, the newest of several: guards are evaluated for it."""
        findings = self.state.findings_of(self.incident)
        return max(findings, key=lambda f: (f.active, f.severity.rank, f.first_seen, f.id), default=None)

    def remember(self, kind: str) -> None:
        """Record an occurrence, so that rules can count the outcome of this step."""
        self.state.remember_occurrence(self.now, kind, self.incident)

    def note(self, kind: str, text: str, data: Facts | None = None) -> None:
        """Add an audit event about this incident."""
        self.state.note(self.now, kind, text, incident=self.incident, data=data)

    def approval(self, run: StepRun) -> str:
        """What an operator's approval of this step covers."""
        return step_key(self.incident.decision, self.stage, self.index, run.key)

    def action_id(self, run: StepRun, verb: str, target: str) -> str:
        """Return the key of an action of this step: the same step of the same decision gives the same key."""
        return f"{self.approval(run)}.{verb}.{target_id_part(target)}"

    def plan_action(
        self, run: StepRun, verb: str, target: str, order: Order | None = None, data: Facts | None = None
    ) -> StepRun:
        """Write the intent and record it in the step."""
        action = Action(
            id=self.action_id(run, verb, target),
            incident=self.incident.id,
            decision=self.incident.decision,
            node=order.node if order else self.incident.node,
            verb=verb,
            planned_at=self.now,
            deadline=_step_deadline(run),
            order=order,
            reason=f"{self.incident.id} {self.incident.rule}",
            data=data or {},
        )
        self.state.put_action(action)
        text = f"{verb} of {action.node} planned"
        self.state.note(
            self.now,
            "action_planned",
            text,
            node=action.node,
            incident=self.incident,
            data={"action": action.id, "verb": verb},
        )
        return replace(run, actions=(*run.actions, action.id))

    def plan_order(self, run: StepRun, kind: OrderKind, node: str, **details: str | int | tuple[str, ...]) -> StepRun:
        """Plan an order to a node; the order's id is the action's."""
        target = ".".join([node, *(str(details[name]) for name in ("job", "attempt", "gpu") if name in details)])
        order = Order(
            id=self.action_id(run, kind.value, target),
            kind=kind,
            node=node,
            issued_at=self.now,
            expires_at=_step_deadline(run),
            incident=self.incident.id,
            reason=f"{self.incident.rule}: {self.incident.title}",
            injected=self.incident.injected,
            **details,  # type: ignore[arg-type]  # the caller names Order's own string fields
        )
        return self.plan_action(run, kind.value, target, order)

    def actions(self, run: StepRun) -> list[Action]:
        """The actions this step planned."""
        return [self.state.actions[a] for a in run.actions]


def target_id_part(target: str) -> str:
    """Return a target as part of an id: unchanged, or for long or unusual names its legible letters and a digest.

    Users choose job names; an id is a database key and part of an API path.
    """
    if _PLAIN.fullmatch(target):
        return target
    legible = re.sub(r"[^A-Za-z0-9._-]", "_", target[:LEGIBLE_MAX])
    return f"{legible}~{hashlib.sha256(target.encode()).hexdigest()[:20]}"


def _step_deadline(run: StepRun) -> float:
    if run.deadline is None:
        raise ValueError(f"step {run.step} acts before it runs")
    return run.deadline


def mark_step_succeeded(run: StepRun, detail: str) -> StepRun:
    """End the step as succeeded."""
    return replace(run, state=StepState.SUCCEEDED, detail=detail)


def mark_step_failed(run: StepRun, detail: str) -> StepRun:
    """End the step as failed."""
    return replace(run, state=StepState.FAILED, detail=detail)


def has_running_actions(context: StepContext, run: StepRun) -> bool:
    """Return whether an action of the step has not ended. The last goes first: of thousands, the earliest end first."""
    return any(not context.state.actions[a].state.final for a in reversed(run.actions))


def step_state_from_actions(context: StepContext, run: StepRun) -> StepRun:
    """Derive the step's state from its actions: all succeeded, any failed (once none runs), or still running."""
    if has_running_actions(context, run):
        return run
    actions = context.actions(run)
    bad = [a for a in actions if a.state is not ActionState.SUCCEEDED]
    if bad:
        return mark_step_failed(run, "; ".join(f"{a.verb} on {a.node} {a.state.value}: {a.detail}" for a in bad))
    return mark_step_succeeded(run, "; ".join(f"{a.node}: {a.detail}" for a in actions if a.detail))

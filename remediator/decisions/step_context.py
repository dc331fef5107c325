"""What a step of a plan may look at and write: one incident's place in the whole state, at one time."""

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
    """What a step function may look at: the whole state, its incident, its place in the plan, the time."""

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
        """Move the node to a state of its life because of this incident."""
        self.state.put_node(transition_node(self.node, to, self.now, f"{self.incident.id}: {self.incident.rule}"))

    def because(self) -> Finding | None:
        """The gravest finding of the incident that is known, the newest of several: what guards ask about."""
        findings = self.state.findings_of(self.incident)
        return max(findings, key=lambda f: (f.active, f.severity.rank, f.first_seen, f.id), default=None)

    def remember(self, kind: str) -> None:
        """Let rules count what this step came to."""
        self.state.remember_deed(self.now, kind, self.incident)

    def note(self, kind: str, text: str, data: Facts | None = None) -> None:
        """A line in the audit log about this incident."""
        self.state.note(self.now, kind, text, incident=self.incident, data=data)

    def approval(self, run: StepRun) -> str:
        """What a person approves who lets this step begin."""
        return step_key(self.incident.decision, self.stage, self.index, run.key)

    def action_id(self, run: StepRun, verb: str, target: str) -> str:
        """The key of an action of this step: the same step of the same decision names the same action."""
        return f"{self.approval(run)}.{verb}.{target_id_part(target)}"

    def plan_action(
        self, run: StepRun, verb: str, target: str, order: Order | None = None, data: Facts | None = None
    ) -> StepRun:
        """Write the intent and remember it in the step."""
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
    """A target as part of an id: as it is, or where it is long or odd, legible letters of it and a digest that tells it apart.

    Jobs are called what their users like; an id is a key of the database, and part of a path of the API.
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
    """The step is over and did what it should."""
    return replace(run, state=StepState.SUCCEEDED, detail=detail)


def mark_step_failed(run: StepRun, detail: str) -> StepRun:
    """The step is over and did not."""
    return replace(run, state=StepState.FAILED, detail=detail)


def has_running_actions(context: StepContext, run: StepRun) -> bool:
    """Whether an action of the step is not over. The last first: of a big job's thousands the first to be asked are over first."""
    return any(not context.state.actions[a].state.final for a in reversed(run.actions))


def step_state_from_actions(context: StepContext, run: StepRun) -> StepRun:
    """The step's state as its actions' states imply: all well, any bad (once none is left running), or still running."""
    if has_running_actions(context, run):
        return run
    actions = context.actions(run)
    bad = [a for a in actions if a.state is not ActionState.SUCCEEDED]
    if bad:
        return mark_step_failed(run, "; ".join(f"{a.verb} on {a.node} {a.state.value}: {a.detail}" for a in bad))
    return mark_step_succeeded(run, "; ".join(f"{a.node}: {a.detail}" for a in actions if a.detail))

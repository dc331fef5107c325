"""What each verb of a playbook means: one function per verb, from a step's progress to its next progress.

A step function is called again and again until the step is over. It plans actions (as records: intent before effect),
looks at what became of them, and returns the step's new state. It never waits: waiting is a state with a deadline.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from remediator.decide.lifecycle import move
from remediator.model.records import (
    Action,
    ActionState,
    Incident,
    IncidentState,
    JobRef,
    NodeRecord,
    NodeState,
    StepRun,
    StepState,
    Verb,
)
from remediator.state import ClusterState
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.order import Order, OrderKind


class Context(msgspec.Struct, frozen=True):
    """What a step function may look at: the whole state, its incident, its place in the plan, the time."""

    state: ClusterState
    incident: Incident
    stage: int
    index: int
    now: float

    @property
    def node(self) -> NodeRecord:
        """The node the incident is about."""
        return self.state.nodes[self.incident.node]

    def enter(self, to: NodeState) -> None:
        """Move the node to a state of its life because of this incident."""
        self.state.put_node(move(self.node, to, self.now, f"{self.incident.id}: {self.incident.rule}"))

    def action_id(self, verb: str, target: str) -> str:
        """The key of an action of this step: the same step of the same decision names the same action."""
        return f"{self.incident.decision}.s{self.stage}.{self.index}.{verb}.{target}"

    def plan_action(self, run: StepRun, verb: str, target: str, order: Order | None = None) -> StepRun:
        """Write the intent and remember it in the step."""
        action = Action(
            id=self.action_id(verb, target),
            incident=self.incident.id,
            decision=self.incident.decision,
            node=order.node if order else self.incident.node,
            verb=verb,
            planned_at=self.now,
            deadline=_deadline(run),
            order=order,
            reason=f"{self.incident.id} {self.incident.rule}",
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
            id=self.action_id(kind.value, target),
            kind=kind,
            node=node,
            issued_at=self.now,
            expires_at=_deadline(run),
            incident=self.incident.id,
            reason=f"{self.incident.rule}: {self.incident.title}",
            injected=self.incident.injected,
            **details,  # type: ignore[arg-type]  # the caller names Order's own string fields
        )
        return self.plan_action(run, kind.value, target, order)

    def actions(self, run: StepRun) -> list[Action]:
        """The actions this step planned."""
        return [self.state.actions[a] for a in run.actions]


def _deadline(run: StepRun) -> float:
    if run.deadline is None:
        raise ValueError(f"step {run.step} acts before it runs")
    return run.deadline


def succeeded(run: StepRun, detail: str) -> StepRun:
    """The step is over and did what it should."""
    return replace(run, state=StepState.SUCCEEDED, detail=detail)


def failed(run: StepRun, detail: str) -> StepRun:
    """The step is over and did not."""
    return replace(run, state=StepState.FAILED, detail=detail)


def after_actions(context: Context, run: StepRun) -> StepRun:
    """The step's state as its actions' states imply: all well, any bad (once none is left running), or still running."""
    actions = context.actions(run)
    if not all(action.state.final for action in actions):
        return run
    bad = [a for a in actions if a.state is not ActionState.SUCCEEDED]
    if bad:
        return failed(run, "; ".join(f"{a.verb} on {a.node} {a.state.value}: {a.detail}" for a in bad))
    return succeeded(run, "; ".join(f"{a.node}: {a.detail}" for a in actions if a.detail))


def drain(context: Context, run: StepRun) -> StepRun:
    """No new work on the node. An operator's own hold serves as well, and stays theirs."""
    if not run.actions:
        if context.node.state is NodeState.OPERATOR_HELD:
            return succeeded(run, "an operator holds the node already")
        if context.node.state is not NodeState.DRAINING:
            context.enter(NodeState.DRAINING)
        if not context.node.held:
            context.state.put_node(replace(context.node, held=True, isolated_at=context.now))
            context.state.isolated_at.append(context.now)
        return context.plan_action(run, Verb.DRAIN.value, context.incident.node)
    (action,) = context.actions(run)
    if action.state is ActionState.REFUSED:
        context.state.put_node(replace(context.node, held=False))
        context.enter(NodeState.OPERATOR_HELD)
        return succeeded(run, f"left to the operator: {action.detail}")
    if action.state is ActionState.SUCCEEDED:
        context.state.put_node(replace(context.node, hold_confirmed_at=context.now))
    return after_actions(context, run)


def notify_trainer(context: Context, run: StepRun) -> StepRun:
    """Order to every rank of every job that has a rank on the node: the whole job must act together.

    While the orders are under way, nodes of the same attempt that are only now heard of get theirs too.
    """
    ordered = [action.order for action in context.actions(run) if action.order]
    jobs = sorted({JobRef(o.job, o.attempt or 0) for o in ordered}) if ordered else context.node.jobs
    if not jobs:
        return succeeded(run, "no trainer on the node")
    kind = OrderKind.ABORT if run.step.how == "abort" else OrderKind.CHECKPOINT_THEN_EJECT
    told = {(o.job, o.node) for o in ordered}
    if not ordered or after_actions(context, run) is run:
        for ref in jobs:
            for node in sorted(n.node for n in context.state.nodes.values() if ref in n.jobs):
                if (ref.job, node) not in told:
                    run = _tell(context, run, kind, ref, node)
    return after_actions(context, run)


def _tell(context: Context, run: StepRun, kind: OrderKind, ref: JobRef, node: str) -> StepRun:
    joint = context.action_id(kind.value, f"{ref.job}.{ref.attempt}")
    condemned = (context.incident.node,)
    return context.plan_order(run, kind, node, job=ref.job, attempt=ref.attempt, condemned=condemned, joint=joint)


def wait_drained(context: Context, run: StepRun) -> StepRun:
    """The scheduler says that no work is left on the node."""
    hold = context.state.holds.get(context.incident.node)
    if hold is None or not hold.drained:
        return run
    context.enter(NodeState.QUARANTINED)
    return succeeded(run, "no work left on the node")


def reset_gpu(context: Context, run: StepRun) -> StepRun:
    """Reset every GPU the incident names, or all of the node's where it names none."""
    if run.actions:
        return after_actions(context, run)
    gpus = {
        f.component.name for f in context.state.findings_of(context.incident) if f.component.kind is ComponentKind.GPU
    }
    context.enter(NodeState.RESETTING)
    for gpu in sorted(gpus - {""}) or ["all"]:
        run = context.plan_order(run, OrderKind.RESET_GPU, context.incident.node, gpu=gpu)
    return run


def preflight(context: Context, run: StepRun) -> StepRun:
    """The node proves itself; only a pass counts."""
    if run.actions:
        return after_actions(context, run)
    context.enter(NodeState.TESTING)
    return context.plan_order(run, OrderKind.RUN_PREFLIGHT, context.incident.node, level=run.step.how or "gate")


def return_to_service(context: Context, run: StepRun) -> StepRun:
    """Lift our hold, once nothing bad is asserted any more; the node is then on probation and the incident over."""
    if not run.actions:
        bad = [f for f in context.state.active_on(context.incident.node) if f.severity.rank >= Severity.ERROR.rank]
        if bad:
            return replace(run, detail=f"waits for {', '.join(sorted({f.kind for f in bad}))} to clear")
        return context.plan_action(run, "resume", context.incident.node)
    run = after_actions(context, run)
    if run.state is StepState.SUCCEEDED:
        context.state.put_node(replace(context.node, held=False, hold_confirmed_at=None))
        context.enter(NodeState.PROBATION)
        context.state.holds.pop(context.incident.node, None)  # what the scheduler said of it then is no longer so
    return run


def replace_node(context: Context, run: StepRun) -> StepRun:
    """The node stays out until people have replaced the part; the way back is theirs: resume it in the scheduler."""
    context.enter(NodeState.REPLACING)
    context.state.put_incident(replace(context.incident, state=IncidentState.WAITING, outcome="waits for replacement"))
    return succeeded(run, "quarantined for replacement")


STEPS: dict[Verb, Callable[[Context, StepRun], StepRun]] = {
    Verb.DRAIN: drain,
    Verb.NOTIFY_TRAINER: notify_trainer,
    Verb.WAIT_DRAINED: wait_drained,
    Verb.RESET_GPU: reset_gpu,
    Verb.PREFLIGHT: preflight,
    Verb.RETURN_TO_SERVICE: return_to_service,
    Verb.REPLACE: replace_node,
}
HANDS_OFF_EXEMPT = frozenset({Verb.DRAIN, Verb.NOTIFY_TRAINER})  # what we still do on a node that an operator holds

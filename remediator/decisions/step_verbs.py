"""The verbs of a playbook: one function per verb, from a step's progress to its next progress.

A step function is called repeatedly until the step ends. It plans actions (as records: intent before effect), reads
their outcomes, and returns the step's new state. It never blocks: waiting is a state with a deadline.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable

from msgspec.structs import replace

from remediator.decisions import circuit_breaker, trainer_orders
from remediator.decisions.isolation_blockers import isolation_blocker_guards
from remediator.decisions.isolation_budget import isolation_guards
from remediator.decisions.operator_takeover import EVICT, RESUME, end_action
from remediator.decisions.return_outcomes import record_node_return
from remediator.decisions.rule_matching import node_work_misfit
from remediator.decisions.spare_nodes import describe_spare_proposal
from remediator.decisions.step_context import (
    StepContext,
    has_running_actions,
    mark_step_failed,
    mark_step_succeeded,
    step_state_from_actions,
)
from remediator.model.journal_records import ActionState, JobRef
from remediator.model.plan_steps import NON_DISRUPTIVE, StepRun, StepState, Verb
from remediator.model.rule_conditions import OPERATOR_OWNED_STATES, NodeState
from remediator.state.cluster_state import EJECT, ISOLATION, RETURNED
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind
from vocabulary.order import OrderKind
from vocabulary.text.duration_format import format_period

EVIDENCE_NODES_MAX = 128  # other nodes of a job that hangs


def run_cordon_step(context: StepContext, run: StepRun) -> StepRun:
    """Keep new work off the node. An operator's own hold serves as well, and remains theirs."""
    if context.node.state in OPERATOR_OWNED_STATES:
        return mark_step_succeeded(run, context.node.cause)
    if run.actions:
        return step_state_from_actions(context, run)
    if not context.node.held:
        refused = _budget_refusal(context) or _new_job_reason(context, run)
        if refused:
            return replace(run, detail=refused)
        context.state.put_node(replace(context.node, held=True, isolated_at=context.now, hold_confirmed_at=None))
        insort(context.state.isolated_at, context.now)
        context.remember(ISOLATION)
        circuit_breaker.check_isolation_count(context.state, context.budget, context.now)
    if context.node.state is not NodeState.DRAINING:
        context.enter(NodeState.DRAINING)
    return context.plan_action(run, Verb.CORDON.value, context.incident.node)


def _budget_refusal(context: StepContext) -> str:
    """Check the budget again where it counts: much may have happened between the decision and this step."""
    node = context.node
    guards = isolation_guards(context.state, node, context.because(), context.budget, context.now)
    guards = (*isolation_blocker_guards(context.state, node), *guards)
    return "; ".join(str(guard) for guard in guards if not guard.passed)


def _new_job_reason(context: StepContext, run: StepRun) -> str:
    no_job_s = run.step.no_job_s
    return "" if no_job_s is None else node_work_misfit(context.node, no_job_s, context.state, context.now)


def run_drain_step(context: StepContext, run: StepRun) -> StepRun:
    """Keep new work off, and wait until the scheduler reports no work left."""
    asked_to_leave = any(action.verb == EVICT for action in context.actions(run))
    if not asked_to_leave and (run.actions or not context.node.held):
        cordoned = run_cordon_step(context, run)
        if cordoned.state is not StepState.SUCCEEDED:
            return cordoned
    hold = context.state.holds.get(context.incident.node)
    if hold is None or not hold.drained:
        if hold is not None and hold.evictable and run.step.no_job_s is None and not asked_to_leave:
            return context.plan_action(run, EVICT, context.incident.node)
        return run
    if context.node.state not in OPERATOR_OWNED_STATES:
        context.enter(NodeState.QUARANTINED)
    return mark_step_succeeded(run, "no work on the node")


def notify_trainer(context: StepContext, run: StepRun) -> StepRun:
    """Send an order to every rank of every job with a rank on the node: the whole job must act together.

    A job's own trouble concerns only the jobs that the findings name. While the orders run, nodes of the same attempt
    that appear only now get theirs too.
    """
    notified_steps = context.state.notified_steps  # thousands of answers to a big job's orders come here
    if context.approval(run) in notified_steps and has_running_actions(context, run):
        return run
    ordered = [action.order for action in context.actions(run) if action.order]
    jobs = (
        sorted({JobRef(o.job, o.attempt or 0) for o in ordered})
        if ordered
        else trainer_orders.jobs_to_notify(context, run)
    )
    if not jobs:
        return mark_step_succeeded(run, "no trainer on the node")
    if trainer_orders.lacks_restore_step(context, run, jobs):
        return mark_step_failed(run, "no finding names the last good step, so the step to go back to is unknown")
    if not ordered and trainer_orders.job_drops_node(run):
        context.remember(EJECT)
    told = {(o.job, o.node) for o in ordered}
    if not ordered or step_state_from_actions(context, run) is run:
        for ref in jobs:
            for node in context.state.job_index.nodes_with(ref):
                if (ref.job, node) not in told:
                    run = _order_job_trainers(context, run, ref, node)
        notified_steps.add(context.approval(run))
    return step_state_from_actions(context, run)


def _order_job_trainers(context: StepContext, run: StepRun, ref: JobRef, node: str) -> StepRun:
    kind, details = trainer_orders.trainer_order(context, run, ref)
    joint = context.action_id(run, kind.value, f"{ref.job}.{ref.attempt}")
    return context.plan_order(run, kind, node, job=ref.job, attempt=ref.attempt, joint=joint, **details)


def reset_gpu(context: StepContext, run: StepRun) -> StepRun:
    """Reset every GPU with a critical finding; all GPUs of the node if none is named, or if an NVSwitch is."""
    if run.actions:
        return step_state_from_actions(context, run)
    findings = context.state.findings_of(context.incident)
    critical = [f.component for f in findings if f.active and f.severity.rank >= Severity.ERROR.rank]
    gpus = {component.name for component in critical if component.kind is ComponentKind.GPU}
    only_gpus = gpus and all(component.kind is ComponentKind.GPU and component.name for component in critical)
    context.enter(NodeState.RESETTING)
    for gpu in sorted(gpus) if only_gpus else ["all"]:
        run = context.plan_order(run, OrderKind.RESET_GPU, context.incident.node, gpu=gpu)
    return run


def run_reboot_step(context: StepContext, run: StepRun) -> StepRun:
    """Reboot the node. It has succeeded once the node reports another boot id."""
    if run.actions:
        return step_state_from_actions(context, run)
    context.enter(NodeState.RESETTING)
    return context.plan_order(run, OrderKind.REBOOT, context.incident.node)


def collect_evidence(context: StepContext, run: StepRun) -> StepRun:
    """Collect the node's evidence from before the fault; after a hang, also the stacks on the job's other nodes.

    The step succeeds with the node's own evidence, whatever becomes of the others'.
    """
    if run.actions:
        if has_running_actions(context, run):
            return run
        own = step_state_from_actions(context, replace(run, actions=run.actions[:1]))
        return replace(own, actions=run.actions)
    jobs = trainer_orders.jobs_that_hang(context)
    others = sorted(
        {node for ref in jobs for node in context.state.job_index.nodes_with(ref)} - {context.incident.node}
    )
    for node in (context.incident.node, *others[:EVIDENCE_NODES_MAX]):
        run = context.plan_order(run, OrderKind.COLLECT_EVIDENCE, node)
    return run


def run_preflight_step(context: StepContext, run: StepRun) -> StepRun:
    """Run preflight on the node; only a pass counts."""
    if run.actions:
        return step_state_from_actions(context, run)
    context.enter(NodeState.TESTING)
    return context.plan_order(run, OrderKind.RUN_PREFLIGHT, context.incident.node, level=run.step.how or "gate")


def return_to_service(context: StepContext, run: StepRun) -> StepRun:
    """Lift our hold once the node has passed a test and no critical finding is active; it is then on probation."""
    kinds = ", ".join(sorted({f.kind for f in context.state.critical_findings_on(context.incident.node)}))
    if not run.actions:
        if not _passed_preflight(context):
            return mark_step_failed(
                run, "no preflight passed since the last repair; a node returns only after a passed preflight"
            )
        if kinds:
            return replace(run, detail=f"waits for {kinds} to clear")
        return context.plan_action(run, RESUME, context.incident.node)
    under_way = [action for action in context.actions(run) if not action.state.final]
    if kinds and under_way:
        for action in under_way:
            end_action(context.state, action, ActionState.CANCELLED, context.now, f"{kinds} appeared in the meantime")
        return mark_step_failed(
            run, f"no preflight passed since {kinds} appeared; a node returns only after a passed preflight"
        )
    run = step_state_from_actions(context, run)
    if run.state is StepState.SUCCEEDED:
        back = record_node_return(replace(context.node, held=False, hold_confirmed_at=None), context.now)
        context.state.put_node(back)
        context.remember(RETURNED)
        context.enter(NodeState.PROBATION)
        seen = context.state.holds.get(context.incident.node)
        if seen is not None and not seen.schedulable:
            context.state.forget_hold(context.incident.node)  # the scheduler's earlier answer is outdated
    return run


def _passed_preflight(context: StepContext) -> bool:
    """Return whether this plan tested the node successfully, after its last change and later critical findings."""
    last = ""
    for action in context.state.actions_of(context.incident):
        if action.decision != context.incident.decision:
            continue
        if action.verb in _REPAIRS | {_TEST}:
            last = action.verb if action.state is ActionState.SUCCEEDED else ""
        elif action.verb == RESUME and action.state is ActionState.CANCELLED:
            last = ""  # a critical finding appeared after the test
    return last == _TEST


def replace_node(context: StepContext, run: StepRun) -> StepRun:
    """Keep the node out until operators have replaced the part; they return it by resuming it in the scheduler."""
    context.enter(NodeState.REPLACING)
    return mark_step_succeeded(
        run, f"quarantined for replacement; {describe_spare_proposal(context.state, context.incident.node)}"
    )


def run_notification_step(context: StepContext, run: StepRun) -> StepRun:
    """Send an alert or a ticket, or run a site hook: once, on the controller."""
    if run.actions:
        return step_state_from_actions(context, run)
    return context.plan_action(run, run.step.verb.value, context.incident.node, data={"how": run.step.how})


def run_watch_step(context: StepContext, run: StepRun) -> StepRun:
    """Watch the incident until no finding is active and all have been quiet for so many seconds."""
    findings = context.state.findings_of(context.incident)
    asserted = sorted({f.kind for f in findings if f.active and f.severity is not Severity.INFO})
    if asserted:
        return replace(run, detail=f"still active: {', '.join(asserted)}")
    quiet_for = context.now - max((f.last_seen for f in findings), default=0.0)
    if quiet_for < float(run.step.how or 0):
        return replace(run, detail=f"to be quiet for {format_period(float(run.step.how or 0))}")
    return mark_step_succeeded(run, "quiet")


_REPAIRS = {OrderKind.RESET_GPU.value, OrderKind.REBOOT.value}
_TEST = OrderKind.RUN_PREFLIGHT.value

STEPS: dict[Verb, Callable[[StepContext, StepRun], StepRun]] = {
    Verb.CORDON: run_cordon_step,
    Verb.DRAIN: run_drain_step,
    Verb.NOTIFY_TRAINER: notify_trainer,
    Verb.COLLECT_EVIDENCE: collect_evidence,
    Verb.RESET_GPU: reset_gpu,
    Verb.REBOOT: run_reboot_step,
    Verb.PREFLIGHT: run_preflight_step,
    Verb.RETURN_TO_SERVICE: return_to_service,
    Verb.REPLACE: replace_node,
    Verb.TICKET: run_notification_step,
    Verb.ALERT: run_notification_step,
    Verb.WATCH: run_watch_step,
    Verb.EXEC: run_notification_step,
}
ALLOWED_UNDER_OPERATOR_HOLD = NON_DISRUPTIVE | {
    Verb.CORDON,
    Verb.NOTIFY_TRAINER,
}  # verbs that still run on an operator-held node

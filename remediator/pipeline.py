"""The pipeline: inputs in, incidents, decisions and planned actions out. Live operation and replay use the same one.

`apply_input` is the only function that changes the state. It depends on the state, the input (which carries its time)
and the settings: no clock, no I/O, no logging. Changes are collected in `state.changes`, and the store writes them
together.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from remediator.decisions import circuit_breaker, common_cause, job_faults
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.group_incident_closure import close_breaker_incident, review_group_incidents
from remediator.decisions.incident_review import review_incident
from remediator.decisions.node_lifecycle import transition_node
from remediator.incidents import detector_verdicts, finding_intake, reopen_rules, silent_nodes
from remediator.model.journal_records import (
    CONTROLLER_ACTOR,
    Action,
    ActionState,
    AuditEvent,
    Facts,
    NodeRecord,
)
from remediator.model.node_location import FILE, NodeLocation
from remediator.model.pipeline_inputs import (
    ActionCancelled,
    ActionEnded,
    AlertsSilenced,
    AnyInput,
    BreakerReset,
    FindingsReported,
    HoldsObserved,
    IncidentCommand,
    IncidentReopened,
    InventoryChanged,
    ManualCordon,
    ModeSet,
    NodeCommand,
    OrderAnswered,
    PlacementChanged,
    PolicyChanged,
    ReceiverTried,
    SilenceEnded,
    SilenceObserved,
    StepApproved,
    Tick,
    TopologyObserved,
    VerdictsReached,
)
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionResult
from remediator.overrides import cluster_overrides, hold_reconciliation, incident_commands, manual_cordon, operator_hold
from remediator.overrides.hold_reconciliation import apply_cordon_answer, reconcile_scheduler_hold
from remediator.state.cluster_state import PREVIOUS_TERM, ClusterState
from remediator.state.incident_reviews import ISOLATION
from vocabulary.finding import Finding
from vocabulary.hardware.gpu_architecture import architecture_of
from vocabulary.order import OrderKind, OrderState
from vocabulary.text.duration_format import format_period

RETRY_FIRST_S = 1.0
RETRY_MAX_S = 30.0
DATA_KEYS_MAX, DATA_CHARS_MAX = 256, 64 << 10  # per order, reported by the node: as much as one update may carry

_FROM_RESULT = {ActionResult.REFUSED: ActionState.REFUSED, ActionResult.UNKNOWN: ActionState.FAILED}
_FROM_ORDER = {
    OrderState.SUCCEEDED: ActionState.SUCCEEDED,
    OrderState.FAILED: ActionState.FAILED,
    OrderState.REFUSED: ActionState.REFUSED,
    OrderState.EXPIRED: ActionState.EXPIRED,
}


def apply_input(state: ClusterState, item: AnyInput, settings: DecisionSettings) -> None:
    """Apply one input and advance every incident it affects. A tick or a placement passes over incidents that rest."""
    touched = _fold_input(state, item, settings)
    settings = cluster_overrides.effective_settings(state.operator_overrides, settings)
    state.reviews.use_settings(settings)
    redecide = touched is not None or isinstance(item, PolicyChanged | ModeSet | PlacementChanged)
    for incident_id in _incidents_on(state, touched):
        if incident_id not in state.incidents:  # another one has absorbed it
            continue
        if touched is not None or not _changes_nothing(state, incident_id, item):
            review_incident(state, incident_id, settings, item.at, redecide=redecide)
    circuit_breaker.check_failure_streak(state, settings.budget, item.at)


def _changes_nothing(state: ClusterState, incident_id: str, item: AnyInput) -> bool:
    """Return whether a review because of time or of a placement elsewhere would change nothing."""
    if not isinstance(item, Tick | PlacementChanged) or not state.reviews.is_resting(incident_id, item.at):
        return False
    return isinstance(item, Tick) or state.reviews.is_decided(incident_id, item.at)


def _incidents_on(state: ClusterState, nodes: set[str] | None) -> list[str]:
    if nodes is None:
        return sorted(i.id for i in state.incidents.values() if not i.wide)
    return sorted(i.id for i in map(state.incident_of, nodes) if i is not None and not i.wide)


def _fold_input(state: ClusterState, item: AnyInput, settings: DecisionSettings) -> set[str] | None:
    """Apply the input to the state. Returns the nodes it concerns, or None for all of them."""
    if isinstance(item, FindingsReported | PlacementChanged | InventoryChanged):
        return _fold_node_report(state, item, settings)
    if isinstance(item, StepApproved | IncidentCommand | IncidentReopened):
        return incident_commands.apply_incident_command(state, item)
    if isinstance(item, NodeCommand | ManualCordon | ActionCancelled):
        return _fold_node_input(state, item)
    if isinstance(item, ModeSet | AlertsSilenced | SilenceEnded | ReceiverTried):
        return cluster_overrides.apply_cluster_override(state, item)
    if isinstance(item, PolicyChanged):
        state.note(item.at, "policy", f"policy {item.digest} ({item.source}) is in force")
        return None
    if isinstance(item, BreakerReset):
        close_breaker_incident(state, item)
        return None
    if isinstance(item, TopologyObserved | SilenceObserved | HoldsObserved | VerdictsReached):
        return _fold_controller_observation(state, item, settings)
    if isinstance(item, ActionEnded):
        return _apply_action_end(state, item)
    if isinstance(item, OrderAnswered):
        return _apply_order_answer(state, item)
    _apply_time(state, item, settings)
    return None


def _fold_node_input(state: ClusterState, item: NodeCommand | ManualCordon | ActionCancelled) -> set[str]:
    if isinstance(item, ActionCancelled):
        return manual_cordon.apply_action_cancellation(state, item)
    return (
        manual_cordon.apply_manual_cordon(state, item)
        if isinstance(item, ManualCordon)
        else operator_hold.apply_node_command(state, item)
    )


def _fold_node_report(
    state: ClusterState, item: FindingsReported | PlacementChanged | InventoryChanged, settings: DecisionSettings
) -> set[str] | None:
    if isinstance(item, FindingsReported):
        _absorb_reported_findings(state, item, settings)
        return {item.node}
    if isinstance(item, PlacementChanged):
        _ensure_node(state, item.node, item.at)
        before, jobs = state.nodes[item.node], tuple(dict.fromkeys(item.jobs))
        if jobs == before.jobs:
            return {item.node}
        left_at = None if jobs else item.at if before.jobs else before.left_at
        worlds = item.worlds if jobs == item.jobs else ()
        state.put_node(replace(before, jobs=jobs, worlds=worlds, left_at=left_at))
        for ordering in state.job_index.incidents_ordering(set(jobs).difference(before.jobs)):
            state.reviews.touch(ordering)  # its order may have to reach this node too
        return None
    _ensure_node(state, item.node, item.at)
    found = {kind for product in item.products if (kind := architecture_of(product)) is not None}
    state.topology.setdefault("report", {})[item.node] = NodeLocation(driver=item.driver, image=item.image)
    places = state.places_of(item.node)
    state.put_node(replace(state.nodes[item.node], architectures=tuple(sorted(found)), places=places))
    return {item.node}


def _fold_controller_observation(
    state: ClusterState,
    item: TopologyObserved | SilenceObserved | HoldsObserved | VerdictsReached,
    settings: DecisionSettings,
) -> set[str]:
    if isinstance(item, VerdictsReached):
        of_jobs = _job_fault_handling(state, settings, item.at)
        return detector_verdicts.absorb_verdicts(
            state, item, _policy_filter(state, settings, item.at), settings.again_after_s, of_jobs
        )
    if isinstance(item, SilenceObserved):
        return silent_nodes.apply_silence_observation(state, item, settings.silence)
    if isinstance(item, HoldsObserved):
        for hold in item.holds:
            reconcile_scheduler_hold(state, hold, item.at)
        return {hold.node for hold in item.holds}
    if item.source == FILE:
        state.topology.pop(PREVIOUS_TERM, None)
    state.topology[item.source] = item.places
    for node in list(state.nodes.values()):
        state.put_node(replace(node, places=state.places_of(node.node)))
    return set()


def _ensure_node(state: ClusterState, node: str, now: float) -> None:
    if node not in state.nodes:
        state.put_node(NodeRecord(node=node, since=now, cause="first report", places=state.places_of(node)))


def _policy_filter(state: ClusterState, settings: DecisionSettings, now: float) -> Callable[[Finding], bool]:
    """Return whether the policy has a rule for a finding."""

    def wanted(finding: Finding) -> bool:
        rule = settings.policy.first(finding, state, now)
        return rule is not None and bool(rule.stages)

    return wanted


def _job_fault_handling(state: ClusterState, settings: DecisionSettings, now: float) -> finding_intake.JobFaultHandling:
    """Select the findings that the policy treats as a job's own fault.

    They belong to the job's incident, not the node's.
    """
    in_force = cluster_overrides.effective_settings(state.operator_overrides, settings)

    def takes(finding: Finding) -> bool:
        rule = job_faults.find_job_rule(state, finding, settings.policy, now)
        if rule is not None:
            job_faults.absorb_job_fault(state, finding, rule, in_force, now)
        return rule is not None

    return finding_intake.JobFaultHandling(lambda finding: job_faults.is_in_job_incident(state, finding.id), takes)


def _absorb_reported_findings(state: ClusterState, item: FindingsReported, settings: DecisionSettings) -> None:
    _ensure_node(state, item.node, item.at)
    wanted = _policy_filter(state, settings, item.at)
    of_jobs, after_s = _job_fault_handling(state, settings, item.at), settings.again_after_s
    for finding in finding_intake.select_own_findings(state, item.node, item.changes, item.at):
        finding_intake.absorb_finding(state, finding, item.at, wanted, again_after_s=after_s, of_jobs=of_jobs)
    if item.active is None:
        return
    for finding in finding_intake.select_own_findings(state, item.node, item.active, item.at):
        known = state.findings.get(finding.id)
        if known is None or not known.active:
            finding_intake.absorb_finding(
                state, finding, item.at, wanted, current=True, again_after_s=after_s, of_jobs=of_jobs
            )
    finding_intake.clear_unasserted(state, item.node, {f.id for f in item.active}, item.at)


def _apply_action_end(state: ClusterState, item: ActionEnded) -> set[str]:
    action = state.actions.get(item.action)
    if action is None or action.state.final:
        _note_late_answer(state, item.action, _answer_text(item.outcome.result.value, item.outcome.detail), item.at)
        return set()
    attempts = action.attempts + 1
    result, detail = item.outcome.result, item.outcome.detail
    if result is ActionResult.FAILED:
        wait = min(RETRY_FIRST_S * 2 ** min(attempts - 1, 10), RETRY_MAX_S)
        state.put_action(replace(action, attempts=attempts, not_before=item.at + wait, detail=detail))
        _note_action(
            state,
            action,
            "action_failed",
            f"attempt {attempts} failed, next in {format_period(wait)}: {detail}",
            item.at,
        )
        return {action.node}
    ended = _FROM_RESULT.get(result, ActionState.SUCCEEDED)
    action = replace(
        action, state=ended, attempts=attempts, finished_at=item.at, detail=detail, untold=item.outcome.untold
    )
    state.put_action(action)
    apply_cordon_answer(state, action, item.at)
    manual_cordon.apply_manual_action_end(state, action, item.at)
    _note_action(state, action, "action_ended", _answer_text(result.value, detail), item.at)
    return {action.node}


def _answer_text(word: str, detail: str) -> str:
    return f"{word}: {detail}" if detail else word


def _apply_order_answer(state: ClusterState, item: OrderAnswered) -> set[str]:
    action, update = state.actions.get(item.update.id), item.update
    if action is None or action.state.final:
        given_up = state.unanswered_actions.actions.get(update.id)
        if given_up is not None and given_up.node == item.node and update.state.final:
            _note_late_answer(
                state, update.id, _answer_text(update.state.value, update.detail), item.at, update.data, item.node
            )
        return set()
    if action.node != item.node:
        return set()
    data = _bound_order_facts(action.data, update.data)
    ended = _FROM_ORDER.get(update.state)
    if ended is None:
        began_at = item.at if action.began_at is None and update.state is OrderState.RUNNING else action.began_at
        if data != action.data or update.detail != action.detail or began_at != action.began_at:
            state.put_action(replace(action, detail=update.detail, data=data, began_at=began_at))
            said = _answer_text(update.state.value, update.detail)
            _note_action(state, action, "order_progress", said, item.at, update.data, item.node)
        return {action.node}
    state.put_action(replace(action, state=ended, finished_at=item.at, detail=update.detail, data=data))
    if ended is ActionState.SUCCEEDED and action.verb == OrderKind.RUN_PREFLIGHT.value:
        detector_verdicts.clear_disproved_verdicts(state, action.node, item.at)
    said = _answer_text(update.state.value, update.detail)
    _note_action(state, action, "action_ended", said, item.at, data, item.node)
    incident = state.incidents.get(action.incident)
    return {action.node} | ({incident.node} if incident else set())


def _note_late_answer(
    state: ClusterState, action_id: str, said: str, now: float, data: Facts | None = None, actor: str = CONTROLLER_ACTOR
) -> None:
    """Record that an action ended after we gave it up. Nothing follows from it."""
    action = state.unanswered_actions.take(action_id)
    if action is not None:
        text = f"ended after it was {action.state.value} ({action.detail}): {said}"
        _note_action(state, action, "action_ended_late", text, now, _bound_order_facts({}, data or {}), actor)


def _bound_order_facts(before: Facts, said: Facts) -> Facts:
    """Merge known and new facts of an order; beyond the limit, the oldest are dropped."""
    data = {key: value for key, value in before.items() if key not in said} | said
    sizes = {key: len(key) + len(str(value)) for key, value in data.items()}
    chars = sum(sizes.values())
    for key, size in sizes.items():
        if len(data) <= DATA_KEYS_MAX and chars <= DATA_CHARS_MAX:
            break
        del data[key]
        chars -= size
    return data


def _note_action(
    state: ClusterState,
    action: Action,
    kind: str,
    text: str,
    now: float,
    data: Facts | None = None,
    actor: str = CONTROLLER_ACTOR,
) -> None:
    incident = state.incidents.get(action.incident)
    facts = {**(data or {}), "action": action.id, "verb": action.verb}
    event = AuditEvent(
        at=now,
        kind=kind,
        text=f"{action.verb} of {action.node} {text}",
        actor=actor,
        node=action.node,
        incident=incident.id if incident else "",
        injected=incident.injected if incident else False,
        data=facts,
    )
    state.changes.audit.append(event)


def _apply_time(state: ClusterState, item: Tick, settings: DecisionSettings) -> None:
    finding_intake.forget_old_findings(state, item.at)
    state.suspects.forget(item.at)
    review_group_incidents(state, item.at)
    common_cause.update_cause_titles(state, settings.budget, item.at)
    job_faults.review_job_incidents(
        state, cluster_overrides.effective_settings(state.operator_overrides, settings), item.at
    )
    circuit_breaker.update_breaker_title(state, item.at)
    state.history.forget(item.at)
    state.unanswered_actions.forget(item.at)
    finding_intake.open_missing_incidents(state, item.at)
    operator_hold.expire_operator_holds(state, item.at)
    hold_reconciliation.check_held_nodes(state, item.at)
    manual_cordon.expire_manual_actions(state, item.at)
    cluster_overrides.expire_silences(state, item.at)
    _clamp_future_times(state, item.at)
    for node in state.nodes_in(NodeState.PROBATION):
        well = state.incident_of(node.node) is None and not state.critical_findings_on(node.node)
        if well and item.at - node.since >= settings.probation_s:
            state.put_node(
                transition_node(
                    node,
                    NodeState.HEALTHY,
                    item.at,
                    f"{format_period(settings.probation_s)} on probation without an incident",
                )
            )


def _clamp_future_times(state: ClusterState, now: float) -> None:
    """Clamp times from the future: a former leader's clock may have been ahead."""
    times = [min(at, now) for at in state.isolated_at if now - at < 86400.0]
    if times != state.isolated_at:
        state.isolated_at[:] = times
        state.reviews.change(ISOLATION)
    reopen_rules.clamp_settlement_times(state, now)
    latest = now + RETRY_MAX_S
    for action in [a for a in state.actions.values() if a.not_before > latest and not a.state.final]:
        state.put_action(replace(action, not_before=latest))

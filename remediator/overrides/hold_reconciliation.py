"""Reconciles the scheduler's holds with the desired ones. Where an operator changed a hold, the operator wins. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.hold_incidents import open_missing_hold_incidents, redecide_node
from remediator.decisions.mode_stop import find_stop_order
from remediator.decisions.node_lifecycle import is_legal_transition, transition_node
from remediator.decisions.operator_takeover import RESUME, hand_node_to_operator, is_action_pending
from remediator.decisions.plan_progress import close_incident
from remediator.incidents import reopen_rules
from remediator.model.journal_records import Action, ActionState, NodeRecord
from remediator.model.plan_steps import Verb
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.state.cluster_state import ClusterState

WITHDRAWN_S = 60.0  # a withdrawn cordon that was already running may still be carried out for this long
RESUMED_S = 60.0  # an answer this soon after our resume may be older than it


def reconcile_scheduler_hold(state: ClusterState, hold: SchedulerNodeState, now: float) -> None:
    """Compare the scheduler's answer with the desired state. Where an operator changed it, the operator wins.

    Only a hold confirmed as ours can be taken over or lifted: before that, the scheduler may not show it yet.
    """
    state.put_hold(hold)
    node = state.nodes.get(hold.node)
    if node is None or node.state is NodeState.RETIRED:
        return
    if hold.schedulable is None:
        if not hold.known and node.held:
            state.put_node(replace(node, hold_confirmed_at=None))  # a node that appears again has no hold of ours
    elif node.held:
        _reconcile_own_hold(state, node, hold, now)
    elif hold.owner is HoldOwner.OPERATOR and node.state is not NodeState.OPERATOR_HELD:
        hand_node_to_operator(state, node, now, f"an operator holds it: {hold.reason}")
    elif node.state is NodeState.OPERATOR_HELD and hold.schedulable and node.hands_off is None:
        said = "the operator released it"
        record_node_release(state, node, now, said, said)
    elif _shows_ours(hold) and not _just_resumed(node, now):
        _readopt_own_hold(state, node, hold, now)


def hold_contradicts_record(node: NodeRecord, hold: SchedulerNodeState) -> bool:
    """Return whether the scheduler's answer contradicts the record; the node is then polled until the two agree.

    An answer received while a change was running may be outdated, and the scheduler may not send another one.
    """
    if hold.schedulable is None or node.state is NodeState.RETIRED:
        return False
    if node.held:
        unconfirmed = hold.owner is HoldOwner.US and node.hold_confirmed_at is None
        return hold.schedulable or hold.owner is HoldOwner.OPERATOR or unconfirmed
    if node.state is NodeState.OPERATOR_HELD:
        return _shows_ours(hold) or (hold.schedulable and node.hands_off is None)
    return hold.owner is HoldOwner.OPERATOR or _shows_ours(hold)


def check_held_nodes(state: ClusterState, now: float) -> None:
    """Ensure that each held node has an owner, and clamp confirmation times to now: later answers would look older."""
    open_missing_hold_incidents(state, now)
    for name in sorted(state.held):
        node = state.nodes[name]
        if node.hold_confirmed_at is not None and node.hold_confirmed_at > now:
            state.put_node(replace(node, hold_confirmed_at=now))


def _reconcile_own_hold(state: ClusterState, node: NodeRecord, hold: SchedulerNodeState, now: float) -> None:
    cordoning = is_action_pending(state, node.node, Verb.CORDON.value, now)
    confirmed = node.hold_confirmed_at is not None and now > node.hold_confirmed_at
    # If stopped, no query is made and no answer will settle the owner.
    stopped = find_stop_order(state.operator_overrides) is not None
    if hold.owner is HoldOwner.OPERATOR and (confirmed or stopped or not cordoning):
        hand_node_to_operator(state, node, now, f"an operator took over: {hold.reason}")
    elif hold.schedulable and confirmed and not is_action_pending(state, node.node, RESUME, now):
        lifted = replace(node, held=False, hold_confirmed_at=None)
        said = "an operator lifted the controller's hold"
        record_node_release(state, lifted, now, said, said)
    elif hold.owner is HoldOwner.US and node.hold_confirmed_at is None and not cordoning:
        state.put_node(replace(node, hold_confirmed_at=now))
    elif hold.schedulable and node.hold_confirmed_at is None and not cordoning and _operator_hold_settled(node, now):
        state.put_node(replace(node, held=False))
        text = f"{node.node} no longer counts as isolated: the hold was withdrawn, and the scheduler shows the node in service"
        state.note(now, "hold_let_go", text, node=node.node, incident=state.incident_of(node.node))


def _shows_ours(hold: SchedulerNodeState) -> bool:
    return hold.owner is HoldOwner.US and hold.schedulable is False


def _operator_hold_settled(node: NodeRecord, now: float) -> bool:
    """Return whether an operator's command is so old that everything running at its time has ended."""
    return node.hands_off is not None and now - node.since >= WITHDRAWN_S


def _just_resumed(node: NodeRecord, now: float) -> bool:
    return bool(node.returns) and abs(now - node.returns[-1].at) < RESUMED_S


def _readopt_own_hold(state: ClusterState, node: NodeRecord, hold: SchedulerNodeState, now: float) -> None:
    """Take our hold back into the record: an operator held the node and released it, or our database is an older copy.

    Or a cordon was carried out although an operator's command withdrew it: it uses budget, and the node stays the
    operator's.
    """
    why, held = f"the controller's hold is in place: {hold.reason}", replace(node, held=True, hold_confirmed_at=now)
    if node.hands_off is not None:
        state.put_node(held)
        return
    if not is_legal_transition(held.state, NodeState.QUARANTINED):
        held = transition_node(held, NodeState.DRAINING, now, why)
    state.put_node(transition_node(held, NodeState.QUARANTINED, now, why))
    redecide_node(state, node.node, now)


def record_node_release(state: ClusterState, node: NodeRecord, now: float, why: str, said: str = "") -> None:
    """Record that an operator returned the node to service, which settles what was known against it.

    `said`: who did it, and what; empty if an earlier operator hold has expired.
    """
    to = NodeState.OPERATOR_HELD if node.hands_off is not None else NodeState.PROBATION
    state.put_node(transition_node(node, to, now, why))
    incident = state.incident_of(node.node)
    if incident is not None:
        close_incident(state, incident, why, now, said)
    if said:
        reopen_rules.restart_settlements(state, node.node, said, now)


def apply_cordon_answer(state: ClusterState, action: Action, now: float) -> None:
    """Apply the scheduler's answer to a cordon to the node's ownership."""
    node = state.nodes.get(action.node)
    if action.verb != Verb.CORDON.value or node is None or not node.held:
        return
    if action.state is ActionState.SUCCEEDED:
        state.put_node(replace(node, hold_confirmed_at=now))
    elif action.state is ActionState.REFUSED:
        hand_node_to_operator(state, node, now, f"left to the operator: {action.detail}")
    elif node.state is NodeState.DRAINING:  # the node does not exist: nothing was isolated, and nothing is held
        let_go = replace(node, held=False, hold_confirmed_at=None)
        state.put_node(transition_node(let_go, NodeState.SUSPECT, now, f"not isolated: {action.detail}"))

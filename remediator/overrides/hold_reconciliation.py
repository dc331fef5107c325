"""What the scheduler says of a node, against what we want of it. Where a person changed it, the person wins. Pure."""

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
from remediator.model.scheduler_hold import HoldOwner, NodeHold
from remediator.state.cluster_state import ClusterState

WITHDRAWN_S = 60.0  # so long after it was withdrawn, a cordon that was under way may still be carried out
RESUMED_S = 60.0  # what a scheduler says so soon after our resume may be older than that


def reconcile_scheduler_hold(state: ClusterState, hold: NodeHold, now: float) -> None:
    """Compare what the scheduler says with what we want. Where a person changed it, the person wins.

    Only a hold that was confirmed as ours can be taken over or lifted: before that, the scheduler may not show it yet.
    """
    state.put_hold(hold)
    node = state.nodes.get(hold.node)
    if node is None or node.state is NodeState.RETIRED:
        return
    if hold.schedulable is None:
        if not hold.known and node.held:
            state.put_node(replace(node, hold_confirmed_at=None))  # what becomes known again has no hold of ours
    elif node.held:
        _reconcile_own_hold(state, node, hold, now)
    elif hold.owner is HoldOwner.OPERATOR and node.state is not NodeState.OPERATOR_HELD:
        hand_node_to_operator(state, node, now, f"an operator holds it: {hold.reason}")
    elif node.state is NodeState.OPERATOR_HELD and hold.schedulable and node.hands_off is None:
        said = "the operator gave it back"
        record_node_release(state, node, now, said, said)
    elif _shows_ours(hold) and not _just_resumed(node, now):
        _readopt_own_hold(state, node, hold, now)


def hold_contradicts_record(node: NodeRecord, hold: NodeHold) -> bool:
    """Whether what the scheduler says is not what we have written down. It is then to be looked at until the two agree.

    What was said while a change was under way may have been overtaken, and the scheduler may never say anything else.
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
    """Whom we hold is somebody's. And no hold was confirmed after now: what is seen from here on would be older than that."""
    open_missing_hold_incidents(state, now)
    for name in sorted(state.held):
        node = state.nodes[name]
        if node.hold_confirmed_at is not None and node.hold_confirmed_at > now:
            state.put_node(replace(node, hold_confirmed_at=now))


def _reconcile_own_hold(state: ClusterState, node: NodeRecord, hold: NodeHold, now: float) -> None:
    cordoning = is_action_pending(state, node.node, Verb.CORDON.value, now)
    confirmed = node.hold_confirmed_at is not None and now > node.hold_confirmed_at
    stopped = find_stop_order(state.standing) is not None  # then nobody asks, and no answer will say whose it is
    if hold.owner is HoldOwner.OPERATOR and (confirmed or stopped or not cordoning):
        hand_node_to_operator(state, node, now, f"an operator took over: {hold.reason}")
    elif hold.schedulable and confirmed and not is_action_pending(state, node.node, RESUME, now):
        lifted = replace(node, held=False, hold_confirmed_at=None)
        said = "an operator lifted our hold"
        record_node_release(state, lifted, now, said, said)
    elif hold.owner is HoldOwner.US and node.hold_confirmed_at is None and not cordoning:
        state.put_node(replace(node, hold_confirmed_at=now))
    elif hold.schedulable and node.hold_confirmed_at is None and not cordoning and _operator_hold_settled(node, now):
        state.put_node(replace(node, held=False))
        text = (
            f"{node.node} takes no place any more: our hold was withdrawn, and the scheduler shows the node in service"
        )
        state.note(now, "hold_let_go", text, node=node.node, incident=state.incident_of(node.node))


def _shows_ours(hold: NodeHold) -> bool:
    return hold.owner is HoldOwner.US and hold.schedulable is False


def _operator_hold_settled(node: NodeRecord, now: float) -> bool:
    """Whether a person's word is so old that what was under way when it came has ended."""
    return node.hands_off is not None and now - node.since >= WITHDRAWN_S


def _just_resumed(node: NodeRecord, now: float) -> bool:
    return bool(node.returns) and abs(now - node.returns[-1].at) < RESUMED_S


def _readopt_own_hold(state: ClusterState, node: NodeRecord, hold: NodeHold, now: float) -> None:
    """Our hold stands and we do not know of it: an operator took the node and let it go, or our database is an older one.

    Or a cordon was carried out after all that a person's word had withdrawn: the node takes a place, and stays theirs.
    """
    why, held = f"our hold stands: {hold.reason}", replace(node, held=True, hold_confirmed_at=now)
    if node.hands_off is not None:
        state.put_node(held)
        return
    if not is_legal_transition(held.state, NodeState.QUARANTINED):
        held = transition_node(held, NodeState.DRAINING, now, why)
    state.put_node(transition_node(held, NodeState.QUARANTINED, now, why))
    redecide_node(state, node.node, now)


def record_node_release(state: ClusterState, node: NodeRecord, now: float, why: str, said: str = "") -> None:
    """A person put the node back into service, and so has the last word on what was known against it.

    `said`: who did, and what; empty where the time of an earlier word is over.
    """
    to = NodeState.OPERATOR_HELD if node.hands_off is not None else NodeState.PROBATION
    state.put_node(transition_node(node, to, now, why))
    incident = state.incident_of(node.node)
    if incident is not None:
        close_incident(state, incident, why, now, said)
    if said:
        reopen_rules.restart_settlements(state, node.node, said, now)


def apply_cordon_answer(state: ClusterState, action: Action, now: float) -> None:
    """What the scheduler's answer to a cordon says of whose the node is."""
    node = state.nodes.get(action.node)
    if action.verb != Verb.CORDON.value or node is None or not node.held:
        return
    if action.state is ActionState.SUCCEEDED:
        state.put_node(replace(node, hold_confirmed_at=now))
    elif action.state is ActionState.REFUSED:
        hand_node_to_operator(state, node, now, f"left to the operator: {action.detail}")
    elif node.state is NodeState.DRAINING:  # there is no such node: nothing was taken out, and nothing is held
        let_go = replace(node, held=False, hold_confirmed_at=None)
        state.put_node(transition_node(let_go, NodeState.SUSPECT, now, f"not taken out of service: {action.detail}"))

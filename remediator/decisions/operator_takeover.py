"""What ends when an operator takes a node over, and how our own holds are reasserted until they are confirmed. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.node_lifecycle import transition_node
from remediator.model.journal_records import Action, ActionState, Incident, NodeRecord
from remediator.model.plan_steps import Verb
from remediator.model.rule_conditions import DAY_S, OPERATOR_OWNED_STATES, NodeState
from remediator.state.cluster_state import ClusterState
from vocabulary.order import OrderKind

RESUME, EVICT = "resume", "evict"
AGAIN_AFTER_S = 300.0  # between two attempts at a hold that failed permanently
HOLD_S = 30 * DAY_S  # how long a hold is tried: a scheduler may be down for long
_CHANGES = frozenset({RESUME, EVICT, OrderKind.RESET_GPU.value, OrderKind.REBOOT.value, OrderKind.RUN_PREFLIGHT.value})


def hand_node_to_operator(state: ClusterState, node: NodeRecord, now: float, cause: str) -> None:
    """Hand the node to an operator: no action of the controller changes it from now on, and no hold on it counts as the controller's."""
    state.put_node(
        transition_node(replace(node, held=False, hold_confirmed_at=None), NodeState.OPERATOR_HELD, now, cause)
    )
    withdraw_node_actions(state, node.node, now, cause)


def withdraw_node_actions(
    state: ClusterState, node: str, now: float, cause: str, also: frozenset[str] = frozenset()
) -> None:
    """Withdraw actions that would change the node, and `also` these verbs; notifications to its trainers go on."""
    incident = state.incident_of(node)
    for action in state.actions_of(incident) if incident is not None else []:
        if action.node == node and action.verb in _CHANGES | also and not action.state.final:
            end_action(state, action, ActionState.CANCELLED, now, cause)


def end_action(state: ClusterState, action: Action, how: ActionState, now: float, detail: str) -> None:
    """End an action whose answer is no longer awaited.

    The scheduler may be carrying it out. So after a resume ended like this, it is unknown whether the hold still
    exists.
    """
    over = replace(action, state=how, finished_at=now, detail=detail)
    state.put_action(over)
    state.unanswered_actions.add(over)
    node = state.nodes.get(action.node)
    if action.verb == RESUME and node is not None and node.held:
        state.put_node(replace(node, hold_confirmed_at=None))


def is_action_pending(state: ClusterState, node: str, verb: str, now: float) -> bool:
    """Return whether this is being requested from the scheduler."""
    incident = state.incident_of(node)
    actions = state.actions_of(incident) if incident is not None else []
    return any(a.verb == verb and a.node == node and not a.state.final and now < a.deadline for a in actions)


def reassert_hold(state: ClusterState, incident: Incident, now: float) -> None:
    """Request a hold of ours that is neither confirmed nor requested."""
    node, seen = state.nodes[incident.node], state.holds.get(incident.node)
    if not node.held or node.hold_confirmed_at is not None or not incident.decision:
        return
    if node.state in OPERATOR_OWNED_STATES:
        return
    if (seen is not None and not seen.known) or is_action_pending(state, node.node, Verb.CORDON.value, now):
        return
    before = [a for a in state.actions_of(incident) if a.verb == Verb.CORDON.value]
    failed = [a.finished_at or 0.0 for a in before if a.state is ActionState.FAILED]
    if failed and now - max(failed) < AGAIN_AFTER_S:
        return
    action = Action(
        id=f"{incident.decision}.again{len(before)}.{Verb.CORDON.value}.{node.node}",
        incident=incident.id,
        decision=incident.decision,
        node=node.node,
        verb=Verb.CORDON.value,
        planned_at=now,
        deadline=now + HOLD_S,
        reason=f"{incident.id} {incident.rule}",
    )
    state.put_action(action)
    text = f"cordon of {node.node} planned again: the hold is not confirmed"
    facts: dict[str, str | int | float | bool] = {"action": action.id, "verb": action.verb}
    state.note(now, "action_planned", text, node=node.node, incident=incident, data=facts)

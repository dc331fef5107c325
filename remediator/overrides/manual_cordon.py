"""Manual cordon, uncordon and cancellation of actions. Pure.

A cordon that an operator requests is an operator hold: the controller never lifts it by itself. The change in the
scheduler is an action like any other, durable before it starts, but belongs to no incident.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from remediator.decisions.hold_incidents import redecide_node
from remediator.decisions.node_lifecycle import transition_node
from remediator.decisions.operator_takeover import end_action, withdraw_node_actions
from remediator.decisions.plan_progress import hand_incident_over
from remediator.model.journal_records import Action, ActionState, AuditEvent, Facts, IncidentState, NodeRecord
from remediator.model.pipeline_inputs import ActionCancelled, ManualCordon, ManualCordonKind
from remediator.model.plan_steps import NON_DISRUPTIVE, Verb
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import THEIR_PREFIX
from remediator.overrides.hold_reconciliation import WITHDRAWN_S, record_node_release
from remediator.state.cluster_state import ClusterState

CORDON, UNCORDON = "cordon_by_hand", "uncordon_by_hand"
BY_HAND = frozenset({CORDON, UNCORDON})
TRIED_S = 900.0  # retry limit while the scheduler is down: a later cordon would surprise the operator who asked for it
SEEN = "seen"  # prefix for the reason of the hold to lift; a hold with another reason has another owner
REASON = "reason"
ACTOR = "actor"
_VERBS = {ManualCordonKind.CORDON: CORDON, ManualCordonKind.UNCORDON: UNCORDON}


def apply_manual_cordon(state: ClusterState, item: ManualCordon) -> set[str]:
    """Cordon or uncordon a node for an operator. The newer command supersedes an older one."""
    node = state.nodes.get(item.node)
    if node is None or node.state is NodeState.RETIRED:
        return set()
    verb = _VERBS[item.word]
    what = f"{item.actor} {item.word.value}s {item.node}" + (f": {item.text}" if item.text else "")
    same = any(action.verb == verb and action.reason == what for action in pending_manual_actions(state, item.node))
    taken_out_since = item.word is ManualCordonKind.UNCORDON and node.held and node.state is not NodeState.OPERATOR_HELD
    if same and not taken_out_since:
        return set()  # already running
    cancel_superseded_actions(state, item.node, item.at, what)
    _append_manual_audit(state, item, "by_hand", what, {"word": item.word.value})
    if item.word is ManualCordonKind.UNCORDON and node.held:
        state.put_node(transition_node(node, NodeState.OPERATOR_HELD, item.at, what))
        withdraw_node_actions(state, item.node, item.at, what, also=frozenset({Verb.CORDON.value}))
    seen = state.holds.get(item.node)
    cause = hashlib.sha256(f"{item.node}\x1f{item.actor}\x1f{verb}\x1f{item.at!r}".encode()).hexdigest()
    action = Action(
        id=f"hand-{cause[:16]}",
        incident="",
        decision="",
        node=item.node,
        verb=verb,
        planned_at=item.at,
        deadline=item.at + TRIED_S,
        reason=what,
        data={
            ACTOR: item.actor,
            REASON: f"{THEIR_PREFIX}{item.actor}: {item.text}",
            SEEN: seen.reason if seen is not None and seen.schedulable is False else "",
        },
    )
    state.put_action(action)
    facts: Facts = {"action": action.id, "verb": verb}
    state.note(item.at, "action_planned", f"{verb} of {item.node} planned: {what}", node=item.node, data=facts)
    return {item.node}


def pending_manual_actions(state: ClusterState, node: str) -> list[Action]:
    """Return an operator's manual actions on a node that are still unanswered."""
    return [action for action in state.actions.values() if action.verb in BY_HAND and action.node == node]


def cancel_superseded_actions(state: ClusterState, node: str, now: float, why: str) -> None:
    """End what is left of an older command. It may still be carried out; the scheduler's next answer says so."""
    for action in pending_manual_actions(state, node):
        _end_manual_action(
            state, replace(action, state=ActionState.CANCELLED, finished_at=now, detail=f"overtaken: {why}"), now
        )


def apply_manual_action_end(state: ClusterState, action: Action, now: float) -> None:
    """Apply the end of a manual action to the node's ownership.

    The scheduler's next answer shows what a cordon achieved.
    """
    node = state.nodes.get(action.node)
    if action.verb not in BY_HAND or node is None or not node.held:
        return
    if action.state is not ActionState.SUCCEEDED:
        _restore_own_hold(state, node, now, f"{action.reason}: {action.state.value}: {action.detail}")
    elif action.verb == UNCORDON:
        said = f"{action.data.get(ACTOR) or 'a person'} uncordoned it"
        record_node_release(state, replace(node, held=False, hold_confirmed_at=None), now, action.reason, said)
    elif node.state is NodeState.OPERATOR_HELD:
        state.put_node(replace(node, since=now, cause=action.reason))  # earlier answers say nothing about it


def _restore_own_hold(state: ClusterState, node: NodeRecord, now: float, why: str) -> None:
    """Restore the controller's hold: it was neither lifted nor replaced, so the controller handles the node and its findings again."""
    if (
        node.state is NodeState.OPERATOR_HELD
        and node.hands_off is None
        and not pending_manual_actions(state, node.node)
    ):
        state.put_node(
            transition_node(node, NodeState.QUARANTINED, now, f"the controller's hold is still in place: {why}")
        )
        redecide_node(state, node.node, now)


def expire_manual_actions(state: ClusterState, now: float) -> None:
    """Expire manual actions: none waits forever, and no hold of ours counts as an operator's forever."""
    for action in [a for a in state.actions.values() if a.verb in BY_HAND and now >= a.deadline]:
        over = replace(
            action, state=ActionState.EXPIRED, finished_at=now, detail=action.detail or "the scheduler did not answer"
        )
        _end_manual_action(state, over, now, f" within {TRIED_S:.0f} s")
        apply_manual_action_end(state, over, now)
    for node in [state.nodes[name] for name in sorted(state.held)]:
        if now - node.since >= WITHDRAWN_S:  # an answer that contradicts it was not received before
            _restore_own_hold(state, node, now, node.cause)


def _end_manual_action(state: ClusterState, over: Action, now: float, within: str = "") -> None:
    state.put_action(over)
    state.unanswered_actions.add(over)
    facts: Facts = {"action": over.id, "verb": over.verb}
    text = f"{over.verb} of {over.node} was not done{within}: {over.detail}"
    state.note(now, "action_ended", text, node=over.node, data=facts)


def apply_action_cancellation(state: ClusterState, item: ActionCancelled) -> set[str]:
    """Cancel a planned action for an operator. The rest of its plan is then theirs, unless it only sends notifications.

    A cordon of ours is a state that is kept, not a single action: it ends by an operator's command on the node.
    """
    action = state.actions.get(item.action)
    if action is None or action.state.final or action.verb == Verb.CORDON.value:
        return set()
    why = f"cancelled by {item.actor}" + (f": {item.text}" if item.text else "")
    incident = state.incidents.get(action.incident)
    _append_manual_audit(
        state, item, "action_cancelled", f"{action.verb} of {action.node} {why}", {"action": action.id}, action
    )
    end_action(state, action, ActionState.CANCELLED, item.at, why)
    apply_manual_action_end(state, replace(action, state=ActionState.CANCELLED, detail=why), item.at)
    if incident is None:
        return {action.node}
    if incident.state is IncidentState.ACTING and action.verb not in NON_DISRUPTIVE:
        for other in state.actions_of(incident):
            if not other.state.final and other.verb not in NON_DISRUPTIVE and other.verb != Verb.CORDON.value:
                end_action(state, other, ActionState.CANCELLED, item.at, f"{action.verb} was {why}")
        hand_incident_over(state, incident, f"{action.verb} of {action.node} was {why}", item.at)
    return {action.node, incident.node}


def _append_manual_audit(
    state: ClusterState,
    item: ManualCordon | ActionCancelled,
    kind: str,
    text: str,
    data: Facts,
    about: Action | None = None,
) -> None:
    node = about.node if about is not None else getattr(item, "node", "")
    incident = state.incident_of(node) if about is None else state.incidents.get(about.incident)
    if item.address:
        data = {**data, "address": item.address}
    event = AuditEvent(
        at=item.at,
        kind=kind,
        text=text,
        actor=item.actor,
        node=node,
        incident=incident.id if incident is not None else "",
        injected=incident.injected if incident is not None else False,
        data=data,
    )
    state.changes.audit.append(event)

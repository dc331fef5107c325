"""Commands on a node: operator hold, retirement, and their end. Pure.

A repeated command changes nothing. No command lifts the controller's own hold in the scheduler: that ends by a passed
test, or when an operator lifts it in the scheduler.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decisions.hold_incidents import is_still_asserted, redecide_node
from remediator.decisions.node_lifecycle import transition_node
from remediator.decisions.operator_takeover import withdraw_node_actions
from remediator.decisions.plan_progress import close_incident
from remediator.model.journal_records import AuditEvent, Facts, NodeRecord, OperatorHold
from remediator.model.pipeline_inputs import NodeCommand, NodeCommandKind
from remediator.model.plan_steps import Verb
from remediator.model.rule_conditions import NodeState
from remediator.overrides import manual_cordon
from remediator.overrides.hold_reconciliation import record_node_release
from remediator.state.cluster_state import ClusterState

_SPOKEN = {
    NodeCommandKind.HOLD: "placed an operator hold on {}",
    NodeCommandKind.RELEASE: "released the operator hold on {}",
    NodeCommandKind.RETIRE: "retired {}",
    NodeCommandKind.UNRETIRE: "unretired {}",
}


def apply_node_command(state: ClusterState, item: NodeCommand) -> set[str]:
    """Apply an operator's command. Returns the nodes it concerns; none if it changes nothing."""
    node = state.nodes.get(item.node)
    if node is None or not _changes_node(node, item):
        return set()
    text = f"{item.actor} {_SPOKEN[item.word].format(item.node)}" + (f": {item.text}" if item.text else "")
    _append_node_audit(state, item, text)
    if item.word in (NodeCommandKind.HOLD, NodeCommandKind.RETIRE):
        manual_cordon.cancel_superseded_actions(state, item.node, item.at, text)
    if item.word is NodeCommandKind.HOLD:
        _hold_node(state, node, item, text)
    elif item.word is NodeCommandKind.RELEASE:
        _release_node(state, node, item.at, text, f"{item.actor} released it")
    elif item.word is NodeCommandKind.RETIRE:
        _retire_node(state, node, item.at, text)
    else:
        _unretire_node(state, node, item.at, text)
    return {item.node}


def expire_operator_holds(state: ClusterState, now: float) -> None:
    """End operator holds whose time has passed."""
    for node in state.nodes_in(NodeState.OPERATOR_HELD):
        if node.hands_off is not None and node.hands_off.until is not None and now >= node.hands_off.until:
            _release_node(state, node, now, f"the operator hold of {node.hands_off.actor} expired")


def _changes_node(node: NodeRecord, item: NodeCommand) -> bool:
    if item.word is NodeCommandKind.HOLD:
        wanted = OperatorHold(item.actor, item.text, item.until)
        over = item.until is not None and item.until <= item.at
        return node.state is not NodeState.RETIRED and node.hands_off != wanted and not over
    if item.word is NodeCommandKind.RELEASE:
        return node.hands_off is not None
    return (node.state is NodeState.RETIRED) is (item.word is NodeCommandKind.UNRETIRE)


def _hold_node(state: ClusterState, node: NodeRecord, item: NodeCommand, why: str) -> None:
    kept = replace(node, hands_off=OperatorHold(item.actor, item.text, item.until))
    state.put_node(transition_node(kept, NodeState.OPERATOR_HELD, item.at, why))
    withdraw_node_actions(state, node.node, item.at, why, also=frozenset({Verb.CORDON.value}))


def _release_node(state: ClusterState, node: NodeRecord, now: float, why: str, said: str = "") -> None:
    """End the operator hold.

    The scheduler's answer counts again, and active findings are decided again, budget included.

    A release means that the system may act again, not that the node is healthy. Where no finding is active, an
    existing hold of the controller stays for operators to lift; one that was withdrawn before it was confirmed is
    dropped.
    """
    let_go, seen = replace(node, hands_off=None), state.holds.get(node.node)
    if node.held and node.hold_confirmed_at is None and seen is not None and seen.schedulable:
        let_go = replace(let_go, held=False)  # if the hold exists after all, the scheduler's next answer says so
    incident = state.incident_of(node.node)
    if let_go.held and manual_cordon.pending_manual_actions(state, node.node):
        state.put_node(let_go)  # the scheduler's answer will settle the owner
    elif let_go.held:
        state.put_node(transition_node(let_go, NodeState.QUARANTINED, now, why))
        redecide_node(state, node.node, now)
    elif seen is not None and seen.schedulable is False:
        state.put_node(let_go)  # an operator's hold in the scheduler remains
    elif incident is not None and is_still_asserted(state, incident):
        state.put_node(transition_node(let_go, NodeState.PROBATION, now, why))
        redecide_node(state, node.node, now)
    else:
        record_node_release(state, let_go, now, why, said)


def _retire_node(state: ClusterState, node: NodeRecord, now: float, why: str) -> None:
    """Retire the node: it uses no isolation budget, whatever its scheduler shows."""
    gone = replace(node, held=False, hold_confirmed_at=None, hands_off=None)
    state.put_node(transition_node(gone, NodeState.RETIRED, now, why))
    incident = state.incident_of(node.node)
    if incident is not None:
        close_incident(state, incident, why, now)


def _unretire_node(state: ClusterState, node: NodeRecord, now: float, why: str) -> None:
    """Return a retired node: on probation, or operator-held while the scheduler keeps work away.

    Its findings are open again.
    """
    for finding in state.active_on(node.node):
        state.unsettle(finding.id)
    seen = state.holds.get(node.node)
    out = seen is not None and seen.schedulable is False
    state.put_node(transition_node(node, NodeState.OPERATOR_HELD if out else NodeState.PROBATION, now, why))


def _append_node_audit(state: ClusterState, item: NodeCommand, text: str) -> None:
    incident = state.incident_of(item.node)
    facts: Facts = {"word": item.word.value}
    if item.address:
        facts["address"] = item.address
    if item.until is not None:
        facts["until"] = item.until
    event = AuditEvent(
        at=item.at,
        kind="node_said",
        text=text,
        actor=item.actor,
        node=item.node,
        incident=incident.id if incident is not None else "",
        data=facts,
    )
    state.changes.audit.append(event)

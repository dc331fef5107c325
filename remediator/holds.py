"""What the scheduler says of a node, against what we want of it. Where a person changed it, the person wins. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.decide.lifecycle import move
from remediator.decide.plan import close
from remediator.model.hold import NodeHold, Owner
from remediator.model.records import NodeRecord
from remediator.model.rules import NodeState
from remediator.state import ClusterState


def compare(state: ClusterState, hold: NodeHold, now: float) -> None:
    """Compare what the scheduler says with what we want. Where a person changed it, the person wins."""
    state.put_hold(hold)
    node = state.nodes.get(hold.node)
    if node is None or hold.schedulable is None:
        return
    if node.held and hold.owner is Owner.OPERATOR and _confirmed_before(node, now):
        state.put_node(
            move(replace(node, held=False), NodeState.OPERATOR_HELD, now, f"an operator took over: {hold.reason}")
        )
    elif node.held and hold.schedulable:
        incident = state.incident_of(node.node)
        actions = state.actions_of(incident) if incident is not None else []
        lifting = any(a.verb == "resume" and not a.state.final for a in actions)
        if _confirmed_before(node, now) and not lifting:
            _lifted_by_operator(state, node, now)
    elif node.held and node.hold_confirmed_at is None:
        state.put_node(replace(node, hold_confirmed_at=now))  # whoever placed it, it holds
    elif not node.held and hold.owner is Owner.OPERATOR and node.state is not NodeState.OPERATOR_HELD:
        state.put_node(move(node, NodeState.OPERATOR_HELD, now, f"an operator holds it: {hold.reason}"))
    elif node.state is NodeState.OPERATOR_HELD and hold.schedulable:
        state.put_node(move(node, NodeState.PROBATION, now, "the operator gave it back"))
        incident = state.incident_of(node.node)
        if incident is not None:
            close(state, incident, "an operator held the node and gave it back", now)


def _confirmed_before(node: NodeRecord, now: float) -> bool:
    return node.hold_confirmed_at is not None and now > node.hold_confirmed_at


def _lifted_by_operator(state: ClusterState, node: NodeRecord, now: float) -> None:
    state.put_node(
        move(
            replace(node, held=False, hold_confirmed_at=None),
            NodeState.PROBATION,
            now,
            "an operator lifted our hold",
        )
    )
    incident = state.incident_of(node.node)
    if incident is not None:
        close(state, incident, "an operator lifted our hold", now)

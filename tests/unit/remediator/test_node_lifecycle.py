from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.decisions.node_lifecycle import IllegalTransition, is_legal_transition, transition_node
from remediator.model.journal_records import NodeRecord, NodeState

STATES = st.sampled_from(NodeState)


@given(STATES, STATES)
def test_a_move_is_legal_or_raises_with_the_nodes_story(from_: NodeState, to: NodeState) -> None:
    node = NodeRecord(node="n1", state=from_, since=5.0, cause="its story")
    if from_ is to:
        assert transition_node(node, to, 9.0, "why") is node
    elif is_legal_transition(from_, to):
        moved = transition_node(node, to, 9.0, "why")
        assert (moved.state, moved.since, moved.cause) == (to, 9.0, "why")
    else:
        with pytest.raises(IllegalTransition, match="its story"):
            transition_node(node, to, 9.0, "why")


@pytest.mark.parametrize("state", sorted(set(NodeState) - {NodeState.RETIRED}))
def test_every_state_but_retired_has_a_way_back_to_healthy(state: NodeState) -> None:
    reached, frontier = {state}, {state}
    while frontier:
        frontier = {to for from_ in frontier for to in NodeState if is_legal_transition(from_, to)} - reached
        reached |= frontier
    assert NodeState.HEALTHY in reached


@pytest.mark.parametrize(
    "state", [NodeState.DRAINING, NodeState.QUARANTINED, NodeState.RESETTING, NodeState.TESTING, NodeState.REPLACING]
)
def test_an_isolated_node_comes_back_only_on_probation(state: NodeState) -> None:
    assert not is_legal_transition(state, NodeState.HEALTHY)


def test_moving_keeps_the_hold() -> None:
    node = NodeRecord(node="n1", state=NodeState.DRAINING, held=True, isolated_at=3.0, hold_confirmed_at=4.0)
    moved = transition_node(node, NodeState.QUARANTINED, 9.0, "why")
    assert (moved.held, moved.isolated_at, moved.hold_confirmed_at) == (True, 3.0, 4.0)

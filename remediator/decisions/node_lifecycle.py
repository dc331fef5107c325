"""The node lifecycle, as a table of legal transitions.

    healthy → suspect → draining → quarantined → (resetting | replacing) → testing → probation → healthy

Findings may move a working node back to suspect; an operator may hold or retire it from any state and release it again,
and only an operator ends a retirement. Any transition outside the table is a bug and raises.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator.model.journal_records import NodeRecord
from remediator.model.rule_conditions import NodeState

S = NodeState

_LEGAL: dict[NodeState, frozenset[NodeState]] = {
    S.HEALTHY: frozenset({S.SUSPECT, S.DRAINING}),
    S.SUSPECT: frozenset({S.HEALTHY, S.DRAINING, S.PROBATION}),
    S.DRAINING: frozenset({S.QUARANTINED, S.RESETTING, S.TESTING, S.REPLACING, S.PROBATION, S.SUSPECT}),
    S.QUARANTINED: frozenset({S.DRAINING, S.RESETTING, S.TESTING, S.REPLACING, S.PROBATION}),
    S.RESETTING: frozenset({S.DRAINING, S.QUARANTINED, S.TESTING, S.REPLACING, S.PROBATION}),
    S.TESTING: frozenset({S.DRAINING, S.QUARANTINED, S.RESETTING, S.REPLACING, S.PROBATION}),
    S.REPLACING: frozenset({S.DRAINING, S.QUARANTINED, S.TESTING, S.PROBATION}),
    S.PROBATION: frozenset({S.HEALTHY, S.SUSPECT, S.DRAINING}),
    S.OPERATOR_HELD: frozenset({S.PROBATION, S.QUARANTINED}),
    S.RETIRED: frozenset({S.PROBATION}),
}


class IllegalTransition(Exception):
    """A transition that the node lifecycle does not have; the message includes the node's history."""


def is_legal_transition(from_: NodeState, to: NodeState) -> bool:
    """Return whether a node may go from `from_` to `to`. Operators may hold or retire any node."""
    if to in {S.OPERATOR_HELD, S.RETIRED}:
        return from_ is not to
    return to in _LEGAL[from_]


def transition_node(node: NodeRecord, to: NodeState, now: float, cause: str) -> NodeRecord:
    """Return the node in its new state; the same record if it is there already.

    Raises:
        IllegalTransition: the table has no such transition.
    """
    if node.state is to:
        return node
    if not is_legal_transition(node.state, to):
        raise IllegalTransition(
            f"{node.node}: {node.state.value} (since {node.since:.0f}, {node.cause}) cannot become {to.value} ({cause})"
        )
    on_trial = to is S.PROBATION or (node.on_trial and to not in {S.HEALTHY, S.RETIRED})
    return replace(node, state=to, since=now, cause=cause, on_trial=on_trial)

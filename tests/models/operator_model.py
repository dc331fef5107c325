"""What a person may say in the model, in which order, and when nothing is left to be done about a node."""

from __future__ import annotations

from collections.abc import Iterator

from remediator.decisions.mode_stop import find_stop_order
from remediator.model.journal_records import Answer, IncidentState
from remediator.model.pipeline_inputs import AnyInput, ModeSet, NodeCommand, NodeCommandKind
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner
from tests.models.controller_model import Rows, fault_of

WORDS = frozenset({"hold", "release", "stop", "go on"})  # to the controller; drain and resume are the scheduler's
_AFTER = {"release": "hold", "go on": "stop", "resume": ""}


def words_ahead(before: tuple[str, ...], bounds: tuple[str, ...]) -> Iterator[str]:
    """What may be said next: each word once, a word that takes another back after that one."""
    for word in bounds:
        if word not in before and _AFTER.get(word, "") in ("", *before):
            yield word


def said(word: str, node: str, now: float) -> AnyInput:
    """The input that a word is."""
    if word in ("stop", "go on"):
        return ModeSet(at=now, mode=Mode.OBSERVE if word == "stop" else None, actor="kim")
    return NodeCommand(at=now, node=node, word=NodeCommandKind(word), actor="kim")


def at_rest(rows: Rows, name: str, owner: str, *, faulty: bool) -> bool:
    """Whether rows and scheduler agree on whose the node is, and nothing more is to come by itself."""
    node = rows.nodes[name]
    open_ = [a for a in rows.actions.values() if a.node == name and not a.state.final]
    incident = next((i for i in rows.incidents.values() if i.node == name), None)
    stopped = find_stop_order(rows.operator_overrides) is not None
    if node.hands_off is not None:
        return node.state is NodeState.OPERATOR_HELD and not open_
    if owner == HoldOwner.OPERATOR.value:
        theirs = node.state is NodeState.OPERATOR_HELD and not node.held and not open_
        return theirs or (stopped and bool(open_))  # whose it is, is heard from the cordon that the stop holds back
    if owner == HoldOwner.US.value:
        called = incident is not None and incident.state is IncidentState.WAITING
        return node.held and (called or stopped)
    if node.held or node.state is NodeState.OPERATOR_HELD:
        return stopped and bool(open_)
    if incident is not None:
        waits = incident.answer is Answer.BLOCKED and any(other.held for other in rows.nodes.values())
        return waits or stopped or incident.state is IncidentState.WAITING
    return not open_ and (not faulty or fault_of(name).id in rows.settled)

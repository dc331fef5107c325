"""What people say of a node: hands off, it is no part of the cluster any more, and that this is over. Pure.

Saying it again changes nothing. Our own hold in the scheduler is never lifted by a word: it ends by a passed test, or
there, by hand.
"""

from __future__ import annotations

from msgspec.structs import replace

from remediator import by_hand
from remediator.decide.called import asserted, take_up
from remediator.decide.hands import withdraw
from remediator.decide.lifecycle import move
from remediator.decide.plan import close
from remediator.holds import given_back
from remediator.model.inputs import NodeSaid, NodeWord
from remediator.model.plan import Verb
from remediator.model.records import AuditEvent, Facts, HandsOff, NodeRecord
from remediator.model.rules import NodeState
from remediator.state import ClusterState

_SPOKEN = {
    NodeWord.HOLD: "keeps us off {}",
    NodeWord.RELEASE: "lets us at {} again",
    NodeWord.RETIRE: "retires {}",
    NodeWord.UNRETIRE: "takes {} back from retirement",
}


def said(state: ClusterState, item: NodeSaid) -> set[str]:
    """Take in what a person said. Returns the nodes it concerns: none, where it is so already."""
    node = state.nodes.get(item.node)
    if node is None or not _news(node, item):
        return set()
    text = f"{item.actor} {_SPOKEN[item.word].format(item.node)}" + (f": {item.text}" if item.text else "")
    _audit(state, item, text)
    if item.word in (NodeWord.HOLD, NodeWord.RETIRE):
        by_hand.overtaken(state, item.node, item.at, text)
    if item.word is NodeWord.HOLD:
        _hold(state, node, item, text)
    elif item.word is NodeWord.RELEASE:
        _release(state, node, item.at, text, f"{item.actor} released it")
    elif item.word is NodeWord.RETIRE:
        _retire(state, node, item.at, text)
    else:
        _unretire(state, node, item.at, text)
    return {item.node}


def time_passed(state: ClusterState, now: float) -> None:
    """End what was said for a time that is over."""
    for node in state.nodes_in(NodeState.OPERATOR_HELD):
        if node.hands_off is not None and node.hands_off.until is not None and now >= node.hands_off.until:
            _release(state, node, now, f"the time is over for which {node.hands_off.actor} kept us off")


def _news(node: NodeRecord, item: NodeSaid) -> bool:
    if item.word is NodeWord.HOLD:
        wanted = HandsOff(item.actor, item.text, item.until)
        over = item.until is not None and item.until <= item.at
        return node.state is not NodeState.RETIRED and node.hands_off != wanted and not over
    if item.word is NodeWord.RELEASE:
        return node.hands_off is not None
    return (node.state is NodeState.RETIRED) is (item.word is NodeWord.UNRETIRE)


def _hold(state: ClusterState, node: NodeRecord, item: NodeSaid, why: str) -> None:
    kept = replace(node, hands_off=HandsOff(item.actor, item.text, item.until))
    state.put_node(move(kept, NodeState.OPERATOR_HELD, item.at, why))
    withdraw(state, node.node, item.at, why, also=frozenset({Verb.CORDON.value}))


def _release(state: ClusterState, node: NodeRecord, now: float, why: str, said: str = "") -> None:
    """The scheduler's word counts again, and what is still asserted of the node is decided upon anew, budget and all.

    A release says that we may look again, not that the node is well. Where nothing is asserted any more, a hold of ours that
    stands is for people to lift, and one that the word withdrew before anybody had confirmed it is gone.
    """
    let_go, seen = replace(node, hands_off=None), state.holds.get(node.node)
    if node.held and node.hold_confirmed_at is None and seen is not None and seen.schedulable:
        let_go = replace(let_go, held=False)  # should it stand all the same, the scheduler's next word says so
    incident = state.incident_of(node.node)
    if let_go.held and by_hand.under_way(state, node.node):
        state.put_node(let_go)  # whose it is, is being settled in the scheduler
    elif let_go.held:
        state.put_node(move(let_go, NodeState.QUARANTINED, now, why))
        take_up(state, node.node, now)
    elif seen is not None and seen.schedulable is False:
        state.put_node(let_go)  # their hold in the scheduler stands
    elif incident is not None and asserted(state, incident):
        state.put_node(move(let_go, NodeState.PROBATION, now, why))
        take_up(state, node.node, now)
    else:
        given_back(state, let_go, now, why, said)


def _retire(state: ClusterState, node: NodeRecord, now: float, why: str) -> None:
    """It takes no place in the budget any more, whatever its scheduler shows."""
    gone = replace(node, held=False, hold_confirmed_at=None, hands_off=None)
    state.put_node(move(gone, NodeState.RETIRED, now, why))
    incident = state.incident_of(node.node)
    if incident is not None:
        close(state, incident, why, now)


def _unretire(state: ClusterState, node: NodeRecord, now: float, why: str) -> None:
    """As new: on probation, or an operator's as long as the scheduler keeps work away. What it asserts is open again."""
    for finding in state.active_on(node.node):
        state.unsettle(finding.id)
    seen = state.holds.get(node.node)
    out = seen is not None and seen.schedulable is False
    state.put_node(move(node, NodeState.OPERATOR_HELD if out else NodeState.PROBATION, now, why))


def _audit(state: ClusterState, item: NodeSaid, text: str) -> None:
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

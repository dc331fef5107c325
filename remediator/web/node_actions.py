"""What an operator may do to a node: the words of each deed, and when it makes sense. Pure but for `offered_node_actions`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remediator.model.views import NodeView
from remediator.web.page_request import PageRequest


class NodeAction(msgspec.Struct, frozen=True):
    """One button. `fits` says whether it makes sense now; `isolates` whether the node takes no work afterwards; `grave` marks it.

    `forced`: it wants one word more while something of ours runs on the node.
    """

    word: str
    title: str
    does: str
    fits: Callable[[NodeView], bool]
    needs_reason: bool = True
    isolates: bool = False
    grave: bool = False
    timed: bool = False
    forced: bool = False


def _is_retired(node: NodeView) -> bool:
    return node.state == "retired"


DEEDS: dict[str, NodeAction] = {
    deed.word: deed
    for deed in (
        NodeAction(
            "hold",
            "Hands off",
            "The system does nothing with this node until you release it, whatever is found on it. What it had begun and "
            "nobody confirmed yet is withdrawn. The scheduler is told nothing: work may still be placed here.",
            lambda node: not _is_retired(node) and node.hands_off is None,
            timed=True,
        ),
        NodeAction(
            "release",
            "Release",
            "The system looks after this node again, and decides anew upon what is still found on it.",
            lambda node: node.hands_off is not None,
            needs_reason=False,
        ),
        NodeAction(
            "cordon",
            "Cordon",
            "The scheduler places no new work here. It is your hold, in your name: the system never lifts it. What runs goes on.",
            lambda node: not _is_retired(node) and node.held_by in {"", "?"},
            isolates=True,
            grave=True,
        ),
        NodeAction(
            "uncordon",
            "Uncordon",
            "The scheduler may place work here again, whoever had it held, and without a preflight: it is your word that the node is well.",
            lambda node: node.held_by != "",
            needs_reason=False,
            forced=True,
        ),
        NodeAction(
            "retire",
            "Retire",
            "The node is no part of the cluster any more: its incident is closed, nothing is done with it, and limits that are "
            "shares of the cluster shrink. The scheduler is told nothing.",
            lambda node: not _is_retired(node),
            grave=True,
        ),
        NodeAction(
            "unretire",
            "Take back",
            "The node is part of the cluster again, on probation.",
            _is_retired,
            needs_reason=False,
        ),
    )
}


def offered_node_actions(visit: PageRequest, node: NodeView) -> list[NodeAction]:
    """The buttons for this node and this person."""
    if not visit.may_operate:
        return []
    return [d for d in DEEDS.values() if d.fits(node) and visit.knows("POST", f"/v1/nodes/{node.node}/{d.word}")]

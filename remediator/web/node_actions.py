"""The actions that operators can take on a node: their texts, and when they apply. Pure except `offered_node_actions`."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from remediator.model.views import NodeView
from remediator.web.page_request import PageRequest


class NodeAction(msgspec.Struct, frozen=True):
    """One button. `fits` says whether it applies now; `isolates`, whether the node takes no work afterwards.

    `dangerous` marks it as dangerous. `forced`: it needs an extra confirmation while automation runs something on the node.
    """

    word: str
    title: str
    does: str
    fits: Callable[[NodeView], bool]
    needs_reason: bool = True
    isolates: bool = False
    dangerous: bool = False
    timed: bool = False
    forced: bool = False


def _is_retired(node: NodeView) -> bool:
    return node.state == "retired"


NODE_ACTIONS: dict[str, NodeAction] = {
    action.word: action
    for action in (
        NodeAction(
            "hold",
            "Take over node",
            "Automation does nothing to this node until you release it, whatever is found on it. Actions that have started "
            "but are not confirmed are withdrawn. The scheduler is not notified: it may still place work here.",
            lambda node: not _is_retired(node) and node.hands_off is None,
            timed=True,
        ),
        NodeAction(
            "release",
            "Release",
            "Automation acts on this node again and makes new decisions about the findings that are still active.",
            lambda node: node.hands_off is not None,
            needs_reason=False,
        ),
        NodeAction(
            "cordon",
            "Cordon",
            "The scheduler places no new work here. Running work continues. Automation never lifts an operator's cordon.",
            lambda node: not _is_retired(node) and node.held_by in {"", "?"},
            isolates=True,
            dangerous=True,
        ),
        NodeAction(
            "uncordon",
            "Uncordon",
            "The scheduler may place work here again, whoever cordoned the node. No preflight runs: you confirm that the node is healthy.",
            lambda node: node.held_by != "",
            needs_reason=False,
            forced=True,
        ),
        NodeAction(
            "retire",
            "Retire",
            "Removes the node from the cluster: its incident is closed, automation ignores it, and limits that are a share "
            "of the cluster shrink. The scheduler is not notified.",
            lambda node: not _is_retired(node),
            dangerous=True,
        ),
        NodeAction(
            "unretire",
            "Unretire",
            "Returns the node to the cluster, on probation.",
            _is_retired,
            needs_reason=False,
        ),
    )
}


def offered_node_actions(visit: PageRequest, node: NodeView) -> list[NodeAction]:
    """The actions that apply to this node and that this person may take."""
    if not visit.may_operate:
        return []
    return [d for d in NODE_ACTIONS.values() if d.fits(node) and visit.knows("POST", f"/v1/nodes/{node.node}/{d.word}")]

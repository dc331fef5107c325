"""Converts between a hold and what is written on a Kubernetes node. Pure.

A hold is ours only while all of its marks are unchanged: whoever changed one has taken the node over.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from remediator.model.scheduler_hold import REASON_PREFIX, THEIR_PREFIX, HoldOwner, SchedulerNodeState
from remediator.schedulers.kubernetes import object_names
from remediator.schedulers.kubernetes.api_objects import Condition, Node


def describe_node_hold(node: Node, us: str) -> SchedulerNodeState:
    """Return the hold on `node`, without its pods; `us` is our owner name."""
    name, notes = node.metadata.name, node.metadata.annotations
    if node.metadata.labels.hands_off is not UNSET:
        return SchedulerNodeState(
            name, False, owner=HoldOwner.OPERATOR, reason=f"the label {object_names.HANDS_OFF} is an operator hold"
        )
    if node.spec.unschedulable:
        changed = foreign_cordon_reason(node, us)
        if not changed:
            return SchedulerNodeState(name, False, owner=HoldOwner.US, reason=notes.reason)
        theirs = notes.reason if not notes.reason.startswith(REASON_PREFIX) else ""
        return SchedulerNodeState(name, False, owner=HoldOwner.OPERATOR, reason=theirs or changed)
    ready = next((c for c in node.status.conditions if c.type == "Ready"), None)
    if ready is None or ready.status != "True":
        said = f"{ready.reason}: {ready.message}" if ready else "its kubelet has not reported yet"
        return SchedulerNodeState(
            name, False, owner=HoldOwner.SCHEDULER, reason=f"not ready ({' '.join(said.split())})"
        )
    return SchedulerNodeState(name, True)


def foreign_cordon_reason(node: Node, us: str) -> str:
    """Return what shows that a cordon is not, or no longer, the controller's; empty if it is."""
    notes = node.metadata.annotations
    taint = _find_our_taint(node)
    if not notes.owner and taint is None:
        return _foreign_cordon_writer(node, us)
    if notes.owner != us:
        return f"held by {notes.owner or 'someone'}, not by {us}"
    if notes.node_uid != node.metadata.uid:
        return "the marks of the hold were copied from another node"
    if not notes.reason.startswith(REASON_PREFIX):
        return "the reason of the hold was removed"
    if taint is None:
        return f"the taint {object_names.TAINT} was removed"
    if taint.get("timeAdded") != notes.since:
        return "the time of the hold was changed"
    writers = _cordon_writers(node)
    if writers and us not in writers:
        return f"cordoned again by {' and '.join(sorted(writers))}"
    return ""


def has_leftover_marks(node: Node, us: str) -> bool:
    """Return whether an uncordoned node still has our taint, which keeps work off, or an operator's reason from us.

    The reason would otherwise appear as that of the node's next cordon.
    """
    if node.metadata.labels.hands_off is not UNSET:
        return False  # our marks there are the operator's to remove
    notes = node.metadata.annotations
    ours = notes.owner == us and _find_our_taint(node) is not None
    theirs = not notes.owner and notes.reason.startswith(THEIR_PREFIX)
    return not node.spec.unschedulable and (ours or theirs)


def build_hold_patch(node: Node, us: str, reason: str, at: str) -> dict[str, Any]:
    """Return a merge patch that cordons exactly this version of `node`; `at` in RFC 3339, whole seconds."""
    taint = {"key": object_names.TAINT, "effect": "NoSchedule", "timeAdded": at}
    notes = {
        object_names.OWNER: us,
        object_names.REASON: reason,
        object_names.SINCE: at,
        object_names.NODE_UID: node.metadata.uid,
    }
    return _build_node_patch(node, notes, {"unschedulable": True, "taints": [*_other_taints(node), taint]})


def build_operator_hold_patch(node: Node, reason: str) -> dict[str, Any]:
    """Return a merge patch that cordons exactly this version of `node` for an operator: the hold is not ours."""
    notes = {
        object_names.OWNER: None,
        object_names.REASON: reason,
        object_names.SINCE: None,
        object_names.NODE_UID: None,
    }
    return _build_node_patch(node, notes, {"unschedulable": True, "taints": _other_taints(node) or None})


def build_lift_patch(node: Node) -> dict[str, Any]:
    """Return a merge patch that removes all of our marks from exactly this version of `node`."""
    notes = dict.fromkeys((object_names.OWNER, object_names.REASON, object_names.SINCE, object_names.NODE_UID))
    return _build_node_patch(node, notes, {"unschedulable": None, "taints": _other_taints(node) or None})


def condition_of(node: Node) -> Condition | None:
    """Return the current status of our condition."""
    return next((c for c in node.status.conditions if c.type == object_names.CONDITION), None)


def build_condition_apply(node: Node, reason: str, at: str) -> dict[str, Any]:
    """Return a server-side apply of our condition alone: False with `reason` while we hold the node, True otherwise."""
    status = "False" if reason else "True"
    known = condition_of(node)
    since = known.last_transition_time if known is not None and known.status == status else at
    said = {
        "type": object_names.CONDITION,
        "status": status,
        "reason": "HeldByGpuHealthd" if reason else "NotHeld",
        "message": reason or "gpu-healthd does not hold this node",
        "lastHeartbeatTime": at,
        "lastTransitionTime": since or at,
    }
    meta = {"name": node.metadata.name, "uid": node.metadata.uid}
    return {"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": {"conditions": [said]}}


def _build_node_patch(node: Node, notes: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    meta = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version, "annotations": notes}
    return {"metadata": meta, "spec": spec}


def _find_our_taint(node: Node) -> dict[str, Any] | None:
    return next((taint for taint in node.spec.taints if taint.get("key") == object_names.TAINT), None)


def _other_taints(node: Node) -> list[dict[str, Any]]:
    return [taint for taint in node.spec.taints if taint.get("key") != object_names.TAINT]


def _cordon_writers(node: Node) -> set[str]:
    """Return who last set ``spec.unschedulable``; empty if the server does not say."""
    found = node.metadata.managed_fields
    return {entry.manager for entry in found if entry.fields.spec.unschedulable is not UNSET}


def _foreign_cordon_writer(node: Node, us: str) -> str:
    writers = sorted(_cordon_writers(node) - {us})
    return f"cordoned by {' and '.join(writers)}" if writers else "cordoned by an unknown user"

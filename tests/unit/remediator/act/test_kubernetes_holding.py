"""What a node's marks mean, without any server: whose hold it is, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.scheduler_hold import HoldOwner
from remediator.schedulers.kubernetes import node_cordon, object_names
from remediator.schedulers.kubernetes.api_objects import Node, Pod
from remediator.schedulers.kubernetes.pod_eviction import build_eviction_request
from remediator.schedulers.kubernetes.pods import is_work
from tests.nodes.fake_kubernetes import patches

US = "gpu-healthd"
AT = "2026-01-02T03:04:05Z"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
FREE: dict[str, Any] = {
    "metadata": {"name": "n1", "uid": "u-1", "resourceVersion": "7", "annotations": {"site": "keeps"}},
    "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "later": "unknown to us"}]},
    "status": {"conditions": [READY]},
}


def read(thing: dict[str, Any]) -> Node:
    return msgspec.convert(thing, Node)


def held() -> dict[str, Any]:
    patch = node_cordon.build_hold_patch(read(FREE), US, "gpu-healthd: inc-1 XID 79", AT)
    thing = patches.merge(FREE, patch)
    thing["metadata"]["managedFields"] = [{"manager": US, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    return thing


def pod(**meta: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "research", "uid": "u-2", **meta},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    }


def test_the_names_we_write_are_frozen() -> None:
    assert {name: getattr(object_names, name) for name in dir(object_names) if name.isupper()} == {
        "PREFIX": "gpu-healthd.dev",
        "TAINT": "gpu-healthd.dev/held",
        "HANDS_OFF": "gpu-healthd.dev/hands-off",
        "OWNER": "gpu-healthd.dev/owner",
        "REASON": "gpu-healthd.dev/reason",
        "SINCE": "gpu-healthd.dev/since",
        "NODE_UID": "gpu-healthd.dev/node-uid",
        "CONDITION": "AcceleratorsHealthy",
        "MIRROR": "kubernetes.io/config.mirror",
        "POD_GROUP": "kueue.x-k8s.io/pod-group-name",
    }


def test_everything_we_write_is_in_one_golden_file(golden: Callable[[str, str], None]) -> None:
    now = read(held())
    written = {
        "cordon": node_cordon.build_hold_patch(read(FREE), US, "gpu-healthd: inc-1 XID 79", AT),
        "condition while held": node_cordon.build_condition_apply(now, "gpu-healthd: inc-1 XID 79", AT),
        "uncordon": node_cordon.build_lift_patch(now),
        "condition afterwards": node_cordon.build_condition_apply(read(FREE), "", AT),
        "eviction": build_eviction_request(msgspec.convert(pod(), Pod), 120),
        "the node, held": held(),
    }
    golden("kubernetes/written.json", json.dumps(written, indent=2, sort_keys=True) + "\n")


def test_our_hold_is_ours_and_lifting_it_leaves_the_node_as_it_was() -> None:
    hold = node_cordon.describe_node_hold(read(held()), US)
    assert (hold.schedulable, hold.owner, hold.reason) == (False, HoldOwner.US, "gpu-healthd: inc-1 XID 79")
    after = patches.merge(held(), node_cordon.build_lift_patch(read(held())))
    after["metadata"].pop("managedFields")
    assert after == FREE


CHANGES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "held by someone, not by gpu-healthd": lambda n: n["metadata"]["annotations"].pop(object_names.OWNER),
    "held by other-centre, not by": lambda n: n["metadata"]["annotations"].update({object_names.OWNER: "other-centre"}),
    "mine now": lambda n: n["metadata"]["annotations"].update({object_names.REASON: "mine now"}),
    "the reason of the hold was removed": lambda n: n["metadata"]["annotations"].pop(object_names.REASON),
    "the time of the hold was changed": lambda n: n["metadata"]["annotations"].update(
        {object_names.SINCE: AT[:-2] + "9Z"}
    ),
    "the taint gpu-healthd.dev/held was removed": lambda n: n["spec"]["taints"].pop(),
    "copied from another node": lambda n: n["metadata"].update(uid="u-9"),
    "cordoned again by kubectl": lambda n: n["metadata"]["managedFields"][0].update(manager="kubectl"),
}


@pytest.mark.parametrize("says", CHANGES)
def test_a_hold_of_which_anything_was_changed_is_an_operators(says: str) -> None:
    thing = json.loads(json.dumps(held()))
    CHANGES[says](thing)
    hold = node_cordon.describe_node_hold(read(thing), US)
    assert (hold.schedulable, hold.owner) == (False, HoldOwner.OPERATOR)
    assert says in hold.reason


def test_a_plain_cordon_is_an_operators_and_says_by_whom() -> None:
    thing = patches.merge(FREE, {"spec": {"unschedulable": True}})
    assert node_cordon.describe_node_hold(read(thing), US).reason == "cordoned by an unknown user"
    thing["metadata"]["managedFields"] = [
        {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
        {"manager": "kubelet", "fieldsV1": {"f:status": {}}},
    ]
    hold = node_cordon.describe_node_hold(read(thing), US)
    assert (hold.owner, hold.reason) == (HoldOwner.OPERATOR, "cordoned by kubectl-cordon")


@pytest.mark.parametrize("conditions", [[], [{**READY, "status": "Unknown", "message": "no\nword"}]])
def test_a_node_whose_kubelet_is_silent_was_taken_out_by_kubernetes(conditions: list[Any]) -> None:
    hold = node_cordon.describe_node_hold(read({**FREE, "status": {"conditions": conditions}}), US)
    assert (hold.schedulable, hold.owner) == (False, HoldOwner.SCHEDULER)
    assert "\n" not in hold.reason


def test_a_node_labelled_hands_off_is_an_operators_whatever_else_it_says() -> None:
    for thing in (FREE, held()):
        labelled = patches.merge(thing, {"metadata": {"labels": {object_names.HANDS_OFF: ""}}})
        assert node_cordon.describe_node_hold(read(labelled), US).owner is HoldOwner.OPERATOR


@pytest.mark.parametrize(
    ("change", "work"),
    [
        ({}, True),
        ({"metadata": {"ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet"}]}}, False),
        ({"metadata": {"ownerReferences": [{"apiVersion": "other.io/v1", "kind": "DaemonSet"}]}}, True),
        ({"metadata": {"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job"}]}}, True),
        ({"metadata": {"annotations": {object_names.MIRROR: ""}}}, False),
        ({"metadata": {"namespace": "gpu-health"}}, False),
        ({"metadata": {"deletionTimestamp": AT}}, True),
        ({"status": {"phase": "Pending"}}, True),
        ({"status": {"phase": "Failed"}}, False),
        ({"status": {"phase": "Succeeded"}}, False),
        ({"spec": {"nodeName": None}}, False),
    ],
)
def test_which_pods_are_work(change: dict[str, Any], *, work: bool) -> None:
    thing = patches.merge(pod(), change)
    for owner in thing["metadata"].get("ownerReferences", []):
        owner.update(name="o", uid="u-o", controller=True)
    assert is_work(msgspec.convert(thing, Pod), ("gpu-health",)) is work


@pytest.mark.parametrize(("own", "asked"), [(30, 120), (None, None), (120, None), (600, None)])
def test_an_evicted_pod_gets_the_longer_grace(own: int | None, asked: int | None) -> None:
    thing = pod()
    thing["spec"]["terminationGracePeriodSeconds"] = own
    assert build_eviction_request(msgspec.convert(thing, Pod), 120)["deleteOptions"].get("gracePeriodSeconds") == asked


marks = st.dictionaries(
    st.sampled_from([object_names.OWNER, object_names.REASON, object_names.SINCE, object_names.NODE_UID, "other"]),
    st.sampled_from([US, "", "u-1", AT, "gpu-healthd: inc", "text"]),
)
taints = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from([object_names.TAINT, "nvidia.com/gpu"])}, optional={"timeAdded": st.just(AT)}
    ),
    max_size=3,
)


@given(notes=marks, dirt=taints, cordoned=st.booleans())
def test_no_marks_whatsoever_confuse_us_and_lifting_removes_ours_alone(
    *, notes: dict[str, str], dirt: list[dict[str, str]], cordoned: bool
) -> None:
    thing = patches.merge(
        FREE, {"metadata": {"annotations": notes}, "spec": {"unschedulable": cordoned, "taints": dirt}}
    )
    hold = node_cordon.describe_node_hold(read(thing), US)
    if hold.owner is HoldOwner.US:
        assert cordoned
        assert (notes[object_names.OWNER], notes[object_names.NODE_UID], notes[object_names.SINCE]) == (US, "u-1", AT)
    after = patches.merge(thing, node_cordon.build_lift_patch(read(thing)))
    assert [taint["key"] for taint in after["spec"].get("taints", [])] == [
        taint["key"] for taint in dirt if taint["key"] != object_names.TAINT
    ]
    assert not any(key.startswith(object_names.PREFIX) for key in after["metadata"]["annotations"])


def test_a_persons_cordon_through_us_is_theirs_and_leaves_nothing_behind() -> None:
    for before in (FREE, held()):
        thing = patches.merge(before, node_cordon.build_operator_hold_patch(read(before), "by kim: a fan"))
        hold = node_cordon.describe_node_hold(read(thing), US)
        assert (hold.schedulable, hold.owner, hold.reason) == (False, HoldOwner.OPERATOR, "by kim: a fan")
        assert not node_cordon.has_leftover_marks(read(thing), US)
        lifted = patches.merge(thing, {"spec": {"unschedulable": None}})  # past us
        assert node_cordon.describe_node_hold(read(lifted), US).schedulable is True
        assert node_cordon.has_leftover_marks(read(lifted), US)
        clean = patches.merge(lifted, node_cordon.build_lift_patch(read(lifted)))
        assert not node_cordon.has_leftover_marks(read(clean), US)
        assert clean["metadata"]["annotations"] == {"site": "keeps"}
        again = patches.merge(clean, {"spec": {"unschedulable": True}})
        assert node_cordon.describe_node_hold(read(again), US).reason != "by kim: a fan"

"""The fake API server against what Kubernetes documents: schemas, patches, selectors, who owns a field."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.nodes.fake_kubernetes import patches
from tests.nodes.fake_kubernetes.eviction import evict
from tests.nodes.fake_kubernetes.rights import Asked, allowed
from tests.nodes.fake_kubernetes.schema import problems
from tests.nodes.fake_kubernetes.selectors import fields_match, labels_match
from tests.nodes.fake_kubernetes.store import RefusedError, Store

NODE: dict[str, Any] = {
    "metadata": {"name": "n"},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def changed(**parts: Any) -> dict[str, Any]:
    return patches.merge(NODE, parts)


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (changed(spec={"unschedulabel": True}), ".spec.unschedulabel: unknown field"),
        (changed(spec={"unschedulable": "true"}), ".spec.unschedulable: 'true' is no bool"),
        (changed(spec={"taints": [{"key": "a"}]}), ".spec.taints[0].effect: required"),
        (changed(spec={"taints": {}}), ".spec.taints: not a list"),
        (changed(metadata={"annotations": {"a": 1}}), ".metadata.annotations.a: 1 is no str"),
        (changed(metadata={"generation": True}), ".metadata.generation: True is no int"),
        (
            changed(metadata={"creationTimestamp": "yesterday"}),
            ".metadata.creationTimestamp: 'yesterday' is no datetime",
        ),
        (changed(status=["x"]), ".status: not an object"),
    ],
)
def test_what_the_schema_does_not_know_is_named(thing: dict[str, Any], says: str) -> None:
    assert list(problems(NODE, "V1Node")) == []
    assert list(problems(thing, "V1Node")) == [says]


def test_an_object_of_the_wrong_shape_is_not_kept() -> None:
    store = Store()
    store.create("nodes", NODE)
    with pytest.raises(RefusedError, match="unknown field") as refused:
        store.change("nodes", "", "n", {"spec": {"x": 1}}, "merge", "m", "")
    assert refused.value.code == 422
    assert store.get("nodes", "", "n")["spec"] == NODE["spec"]


def test_a_merge_patch_replaces_lists_and_a_strategic_one_merges_those_with_a_key() -> None:
    patch = {"status": {"conditions": [{"type": "Mine", "status": "True"}]}, "spec": {"taints": []}}
    assert [c["type"] for c in patches.merge(NODE, patch)["status"]["conditions"]] == ["Mine"]
    assert [c["type"] for c in patches.strategic(NODE, patch)["status"]["conditions"]] == ["Ready", "Mine"]
    assert patches.strategic(NODE, patch)["spec"]["taints"] == []
    gone = {"status": {"conditions": [{"type": "Ready", "$patch": "delete"}]}}
    assert patches.strategic(NODE, gone)["status"]["conditions"] == []


def test_a_json_patch_tests_before_it_changes() -> None:
    steps = [{"op": "test", "path": "/metadata/name", "value": "n"}, {"op": "add", "path": "/spec/a~1b", "value": 1}]
    assert patches.json_patch(NODE, steps)["spec"]["a/b"] == 1
    assert "taints" not in patches.json_patch(NODE, [{"op": "remove", "path": "/spec/taints"}])["spec"]
    with pytest.raises(patches.PatchError, match="test failed"):
        patches.json_patch(NODE, [{"op": "test", "path": "/metadata/name", "value": "m"}])
    with pytest.raises(patches.PatchError, match="no such path"):
        patches.json_patch(NODE, [{"op": "remove", "path": "/spec/nothing"}])


@pytest.mark.parametrize("field", ["resourceVersion", "uid"])
def test_a_write_on_another_version_or_another_object_is_a_conflict(field: str) -> None:
    store = Store()
    meta = store.create("nodes", NODE)["metadata"]
    store.change(
        "nodes", "", "n", {"metadata": {field: meta[field]}, "spec": {"unschedulable": True}}, "merge", "m", ""
    )
    with pytest.raises(RefusedError) as refused:
        store.change("nodes", "", "n", {"metadata": {field: "1"}}, "merge", "m", "")
    assert refused.value.code == 409


def owners(store: Store) -> dict[str, Any]:
    entries = store.get("nodes", "", "n")["metadata"].get("managedFields", [])
    return {f"{e['manager']} {e['operation']}": e["fieldsV1"] for e in entries}


def test_a_field_belongs_to_who_changed_it_last() -> None:
    store = Store()
    store.create("nodes", NODE)
    store.change("nodes", "", "n", {"spec": {"unschedulable": True}}, "merge", "us", "")
    store.change("nodes", "", "n", {"spec": {"unschedulable": True}}, "merge", "other", "")  # changes nothing
    assert owners(store) == {"us Update": {"f:spec": {"f:unschedulable": {}}}}
    store.change("nodes", "", "n", {"spec": {"unschedulable": None}}, "merge", "other", "")
    assert owners(store) == {}
    store.change("nodes", "", "n", {"spec": {"unschedulable": True}}, "strategic", "other", "")
    assert owners(store) == {"other Update": {"f:spec": {"f:unschedulable": {}}}}


def test_what_is_applied_is_owned_and_goes_when_it_is_applied_no_more() -> None:
    store = Store()
    store.create("nodes", NODE)
    body = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Mine", "status": "True", "reason": "R"}]}}
    store.change("nodes", "", "n", body, "apply", "us", "status")
    shorter = copy.deepcopy(body)
    del shorter["status"]["conditions"][0]["reason"]
    after = store.change("nodes", "", "n", shorter, "apply", "us", "status")
    assert after["status"]["conditions"] == [{"type": "Ready", "status": "True"}, {"type": "Mine", "status": "True"}]
    assert list(owners(store)) == ["us Apply"]


def test_each_side_of_an_object_is_written_by_its_own_door() -> None:
    store = Store()
    store.create("nodes", NODE)
    both = {"spec": {"unschedulable": True}, "status": {"phase": "Running"}}
    assert "phase" not in store.change("nodes", "", "n", both, "merge", "m", "")["status"]
    after = store.change(
        "nodes", "", "n", {"spec": {"unschedulable": None}, "status": both["status"]}, "merge", "m", "status"
    )
    assert (after["spec"]["unschedulable"], after["status"]["phase"]) == (True, "Running")


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("", True),
        ("a", True),
        ("!a", False),
        ("b", False),
        ("a=1,c!=2", True),
        ("a==2", False),
        ("a in (1, 2),!b", True),
        ("a notin (1)", False),
        ("c notin (1)", True),
        ("a in (2)", False),
    ],
)
def test_label_selectors(selector: str, *, fits: bool) -> None:
    assert labels_match(selector, {"a": "1"}) is fits


@pytest.mark.parametrize(
    ("selector", "fits"),
    [("", True), ("metadata.name=n", True), ("spec.nodeName!=", False), ("status.phase!=Failed", True)],
)
def test_field_selectors(selector: str, *, fits: bool) -> None:
    assert fields_match(selector, NODE) is fits


def test_rights_are_what_a_rule_says_and_no_more() -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    assert allowed(Asked("list", "", "nodes"), rules)
    assert allowed(Asked("delete", "", "nodes"), None)
    for asked in (Asked("patch", "", "nodes"), Asked("list", "", "nodes/status"), Asked("list", "batch", "nodes")):
        assert not allowed(asked, rules)


def test_a_map_of_annotations_that_became_empty_is_gone() -> None:
    store = Store()
    store.create("nodes", {**NODE, "metadata": {"name": "n", "annotations": {"a": "b"}}})
    after = store.change("nodes", "", "n", {"metadata": {"annotations": {"a": None}}}, "merge", "m", "")
    assert "annotations" not in after["metadata"]


@pytest.mark.parametrize(
    ("policy", "healthy", "ready", "goes"),
    [
        (None, 1, "False", True),  # IfHealthyBudget: the others suffice
        (None, 0, "False", False),
        ("IfHealthyBudget", 0, "False", False),
        ("AlwaysAllow", 0, "False", True),
        ("AlwaysAllow", 0, "True", False),
    ],
)
def test_a_budget_says_whether_pods_that_are_not_ready_may_go(
    policy: str | None, healthy: int, ready: str, *, goes: bool
) -> None:
    store = Store()
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "a"}}, "minAvailable": 1}
    spec |= {"unhealthyPodEvictionPolicy": policy} if policy else {}
    numbers = {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 1, "expectedPods": 2}
    store.create("poddisruptionbudgets", {"metadata": {"name": "b", "namespace": "x"}, "spec": spec, "status": numbers})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}
    pod = {"metadata": {"name": "p", "namespace": "x", "labels": {"app": "a"}}, "spec": {"containers": []}}
    store.create("pods", {**pod, "status": status})
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "x"}}
    if goes:
        assert evict(store, "x", "p", body)["status"] == "Success"
        return
    with pytest.raises(RefusedError) as refused:
        evict(store, "x", "p", body)
    assert refused.value.code == 429

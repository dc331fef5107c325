"""What a stolen Kubernetes token of ours can do: the shipped admission policies, evaluated as the API server evaluates them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from tests.conftest import skip_or_fail
from tests.nodes.fake_kubernetes.admission import Policies, user_of, why_not
from tests.nodes.fake_kubernetes.cluster import ROLE, documents
from tests.unit.deploy import chart

Node = dict[str, Any]
Change = Callable[[Node], Any]
UID, AT = "7d1f", "2026-01-01T00:00:00Z"
HELD = {"key": "gpu-healthd.dev/held", "effect": "NoSchedule", "timeAdded": AT}
MARKS = {
    "gpu-healthd.dev/owner": "gpu-healthd", "gpu-healthd.dev/reason": "gpu-healthd: inc-1 XID 79",
    "gpu-healthd.dev/since": AT, "gpu-healthd.dev/node-uid": UID,
}  # fmt: skip
REASON = "gpu-healthd.dev/reason"
UNTESTED = {"key": "gpu-healthd.dev/untested", "effect": "NoSchedule"}
OWNER = {"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "0"}


@pytest.fixture(autouse=True)
def _evaluator() -> None:
    if why := why_not():
        skip_or_fail(why)


@cache
def shipped() -> Policies:
    return Policies(documents(ROLE.with_name("admission.yaml")))


def node(**changes: Any) -> Node:
    """A GPU node as an API server has it, with others' marks."""
    found: Node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "n1", "uid": UID, "resourceVersion": "7", "creationTimestamp": AT,
            "labels": {"nvidia.com/gpu.present": "true", "zone": "a"}, "annotations": {"theirs": "x"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": "p", "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }  # fmt: skip
    for part, fields in changes.items():
        found[part] |= fields
    return found


def held() -> Node:
    """A node that the controller holds."""
    found = node()
    hold(found)
    found["metadata"]["managedFields"].append(
        {"manager": "gpu-healthd", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    )
    return found


def cordoned() -> Node:
    """A node that an operator cordoned with kubectl."""
    by = {"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}
    found = node(spec={"unschedulable": True})
    found["metadata"]["managedFields"].append(by)
    return found


def put_over(found: Node, key: str, value: str) -> Node:
    found["metadata"]["annotations"][key] = value
    return found


def cordoned_anew() -> Node:
    found = held()
    found["metadata"]["managedFields"][-1]["manager"] = "kubectl-cordon"
    return found


def hold(found: Node) -> None:
    found["spec"]["unschedulable"] = True
    found["spec"]["taints"] = [*found["spec"]["taints"], dict(HELD)]
    found["metadata"]["annotations"] |= MARKS


def clear(found: Node) -> None:
    found["spec"].pop("unschedulable", None)
    found["spec"]["taints"] = [t for t in found["spec"]["taints"] if t["key"] != HELD["key"]]
    for key in MARKS:
        found["metadata"]["annotations"].pop(key, None)


def hold_for(found: Node) -> None:
    clear(found)
    found["spec"]["unschedulable"] = True
    found["metadata"]["annotations"][REASON] = "by kim: fan"


def condition(found: Node) -> None:
    found["metadata"]["managedFields"] = []
    found["status"]["conditions"].append({"type": "AcceleratorsHealthy", "status": "False", "message": "m"})


def put(*path: str, value: Any) -> Change:
    def change(found: Node) -> None:
        for part in path[:-1]:
            found = found.setdefault(part, {})
        found[path[-1]] = value

    return change


def both(*changes: Change) -> Change:
    def change(found: Node) -> None:
        for each in changes:
            each(found)

    return change


def taint(**fields: Any) -> Change:
    """Our hold, with a taint of ours that is different in these fields."""

    def change(found: Node) -> None:
        hold(found)
        found["spec"]["taints"][-1] |= fields

    return change


def denied(
    before: Node, change: Change, account: str = "remediator", part: str = "", policies: Policies | None = None
) -> str:
    after = copy.deepcopy(before)
    change(after)
    request = {"operation": "UPDATE", "userInfo": user_of(account, "n1"), "name": "n1"}
    request |= {"subResource": part} if part else {}
    given = {"object": after, "oldObject": before, "request": request}
    return (policies or shipped()).denied(f"nodes/{part}" if part else "nodes", given)


HANDS_OFF = {"nvidia.com/gpu.present": "true", "gpu-healthd.dev/hands-off": ""}
ATTACKS: list[tuple[str, Callable[[], Node], Change, str]] = [
    ("owner references: the garbage collector deletes the node", node, both(hold, put("metadata", "ownerReferences", value=[OWNER])), "no owner"),
    ("owner references alone", node, put("metadata", "ownerReferences", value=[OWNER]), "no owner"),
    ("finalizers", node, both(hold, put("metadata", "finalizers", value=["a/b"])), "no finalizer"),
    ("a label", node, both(hold, put("metadata", "labels", "zone", value="b")), "no label"),
    ("another's annotation", node, both(hold, put("metadata", "annotations", "theirs", value="y")), "no annotation"),
    ("an annotation under our prefix", node, both(hold, put("metadata", "annotations", "gpu-healthd.dev/x", value="y")), "no annotation"),
    ("NoExecute throws pods out", node, taint(effect="NoExecute"), "neither a whole hold"),
    ("NoExecute on a node we hold", held, lambda n: n["spec"]["taints"][-1].update(effect="NoExecute"), "neither a whole hold"),
    ("a second taint of our key", node, both(hold, lambda n: n["spec"]["taints"].append({**HELD, "effect": "NoExecute"})), "neither a whole hold"),
    ("a taint with a value", node, taint(value="x"), "neither a whole hold"),
    ("another taint", node, both(hold, lambda n: n["spec"]["taints"].append({"key": "x", "effect": "NoExecute"})), "no taint"),
    ("another's taint away", node, both(hold, lambda n: n["spec"]["taints"].pop(0)), "no taint"),
    ("a cordon without a mark", node, put("spec", "unschedulable", value=True), "neither a whole hold"),
    ("a hold in another's name", node, both(hold, put("metadata", "annotations", "gpu-healthd.dev/owner", value="kim")), "neither a whole hold"),
    ("a hold with another node's uid", node, both(hold, put("metadata", "annotations", "gpu-healthd.dev/node-uid", value="8")), "neither a whole hold"),
    ("a pod range", node, both(hold, put("spec", "podCIDR", value="10.9.0.0/24")), "no address"),
    ("a new field of the specification", node, both(hold, put("spec", "externalID", value="x")), "no address"),
    ("an operator's cordon lifted", cordoned, clear, "somebody else cordoned"),
    ("an operator's cordon taken for ours", cordoned, put("metadata", "annotations", value=dict(MARKS)), "no annotation"),
    ("an operator's cordon marked as ours, to lift it next", cordoned, hold, "neither a whole hold"),
    ("an operator's cordon given a person's reason, to lift it next", cordoned, hold_for, "neither a whole hold"),
    ("our cordon that an operator took over", lambda: put_over(held(), REASON, "ask Kim"), clear, "somebody else cordoned"),
    ("marks that were copied from another node", lambda: put_over(held(), "gpu-healthd.dev/node-uid", "8"), clear, "somebody else cordoned"),
    ("cordoned anew by an operator under our marks", cordoned_anew, clear, "somebody else cordoned"),
    ("a node with hands off", lambda: node(metadata={"labels": HANDS_OFF}), hold, "hands-off"),
    ("a node without GPUs", lambda: node(metadata={"labels": {}}), hold, "no GPU node"),
    ("nothing but who owns the fields", cordoned, put("metadata", "managedFields", value=[]), "neither a whole hold"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "change", "says"), [a[1:] for a in ATTACKS], ids=[a[0] for a in ATTACKS])
def test_with_the_controllers_token_one_changes_nothing_else_of_a_node(
    before: Callable[[], Node], change: Change, says: str
) -> None:
    assert says in denied(before(), change)


def test_nobody_makes_a_node_with_a_token_of_ours() -> None:
    for account in ("remediator", "healthd"):
        request = {"operation": "CREATE", "userInfo": user_of(account, "n1")}
        given = {"object": node(), "oldObject": None, "request": request}
        assert shipped().denied("nodes", given)
        assert shipped().denied("nodes/status", given)


STATUS_ATTACKS: list[tuple[str, Callable[[], Node], Change, str]] = [
    ("Ready", node, lambda n: n["status"]["conditions"][0].update(status="False"), "no condition but"),
    ("a condition away", node, both(condition, lambda n: n["status"]["conditions"].pop(0)), "no condition but"),
    ("allocatable", node, both(condition, put("status", "allocatable", "cpu", value="0")), "nothing of a node's status"),
    ("an address", node, both(condition, put("status", "addresses", value=[])), "nothing of a node's status"),
    ("a new field", node, both(condition, put("status", "phase", value="x")), "nothing of a node's status"),
    ("owner references", node, both(condition, put("metadata", "ownerReferences", value=[OWNER])), "no metadata"),
    ("an annotation", node, both(condition, put("metadata", "annotations", "theirs", value="y")), "no metadata"),
    ("neither true nor false", node, both(condition, lambda n: n["status"]["conditions"][-1].update(status="Unknown")), "True or False"),
    ("a node with hands off", lambda: node(metadata={"labels": HANDS_OFF}), condition, "hands-off"),
    ("a node without GPUs", lambda: node(metadata={"labels": {}}), condition, "no GPU node"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "change", "says"), [a[1:] for a in STATUS_ATTACKS], ids=[a[0] for a in STATUS_ATTACKS]
)
def test_with_the_controllers_token_one_writes_one_condition_of_a_status(
    before: Callable[[], Node], change: Change, says: str
) -> None:
    assert says in denied(before(), change, part="status")


def theirs() -> Node:
    found = node()
    hold_for(found)
    return found


def left_behind() -> Node:
    found = held()
    del found["spec"]["unschedulable"]
    return found


@pytest.mark.parametrize(
    ("before", "change", "part"),
    [
        (node, hold, ""),
        (node, hold_for, ""),
        (held, hold_for, ""),
        (held, clear, ""),
        (theirs, clear, ""),
        (left_behind, clear, ""),
        (left_behind, lambda n: (clear(n), hold(n)), ""),
        (node, condition, "status"),
        (held, condition, "status"),
    ],
)
def test_what_the_controller_writes_is_let_through(before: Callable[[], Node], change: Change, part: str) -> None:
    assert denied(before(), change, part=part) == ""


def test_other_accounts_are_not_our_business() -> None:
    assert denied(node(), put("metadata", "finalizers", value=["a/b"]), account="somebody") == ""


def untested() -> Node:
    return node(spec={"taints": [UNTESTED, {"key": "gpu", "effect": "NoSchedule"}]})


def admit(found: Node) -> None:
    found["spec"]["taints"] = [t for t in found["spec"]["taints"] if t != UNTESTED]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (admit, ""),
        (both(admit, put("metadata", "ownerReferences", value=[OWNER])), "no owner"),
        (both(admit, put("metadata", "finalizers", value=["a/b"])), "no finalizer"),
        (both(admit, put("metadata", "labels", value={})), "no label"),
        (both(admit, put("spec", "unschedulable", value=True)), "cordons nothing"),
        (both(admit, put("spec", "configSource", value={})), "cordons nothing"),
        (both(admit, lambda n: n["spec"]["taints"].append(HELD)), "sets none"),
        (both(admit, lambda n: n["spec"]["taints"].pop()), "sets none"),
        (both(admit, put("metadata", "name", value="n2")), "only the node it runs on"),
    ],
)
def test_with_a_nodes_token_one_takes_its_startup_taint_away_and_nothing_else(change: Change, says: str) -> None:
    said = denied(untested(), change, account="healthd")
    assert says in said
    assert bool(said) is bool(says)


def test_with_a_nodes_token_one_writes_no_status() -> None:
    assert "no status" in denied(node(), condition, account="healthd", part="status")


def evicted(namespace: str, labels: dict[str, str], **options: Any) -> str:
    body = (
        {"metadata": {"name": "p", "namespace": namespace}, "deleteOptions": options} if options else {"metadata": {}}
    )
    request = {"operation": "CREATE", "userInfo": user_of("remediator"), "namespace": namespace, "name": "p"}
    space = {"metadata": {"name": namespace, **({"labels": labels} if labels else {})}}
    return shipped().denied("pods/eviction", {"object": body, "request": request, "namespaceObject": space})


ALLOWED = {"gpu-healthd.dev/evict": "allowed"}
VERY_POD = {"preconditions": {"uid": "u"}}


@pytest.mark.parametrize(
    ("namespace", "labels", "options", "says"),
    [
        ("research", ALLOWED, VERY_POD, ""),
        ("research", ALLOWED, VERY_POD | {"gracePeriodSeconds": 120}, ""),
        ("research", {}, VERY_POD, "may not evict in this namespace"),
        ("research", {"gpu-healthd.dev/evict": "no"}, VERY_POD, "may not evict in this namespace"),
        ("kube-system", ALLOWED, VERY_POD, "may not evict in this namespace"),
        ("gpu-health", ALLOWED, VERY_POD, "may not evict in this namespace"),
        ("research", ALLOWED, {}, "by the uid"),
        ("research", ALLOWED, {"preconditions": {"resourceVersion": "1"}}, "by the uid"),
        ("research", ALLOWED, VERY_POD | {"propagationPolicy": "Foreground"}, "by the uid"),
        ("research", ALLOWED, VERY_POD | {"gracePeriodSeconds": 0}, "time to save itself"),
    ],
)
def test_with_the_controllers_token_one_evicts_where_an_administrator_allowed_it(
    namespace: str, labels: dict[str, str], options: dict[str, Any], says: str
) -> None:
    said = evicted(namespace, labels, **options)
    assert says in said
    assert bool(said) is bool(says)


def policies_with(values: dict[str, Any]) -> Policies:
    return Policies(d for (kind, _), d in chart.documents(values).items() if "Admission" in kind)


def test_a_site_may_let_the_controller_lift_others_cordons_at_a_persons_word() -> None:
    found = policies_with({"remediator": {"rights": {"uncordonOthers": True}}})
    assert denied(cordoned(), clear, policies=found) == ""
    assert "no finalizer" in denied(
        cordoned(), both(clear, put("metadata", "finalizers", value=["a/b"])), policies=found
    )


def test_the_policies_know_the_sites_nodes_and_the_controllers_name() -> None:
    values = {"gpuNodes": [{"label": "pool", "value": "h100"}]}
    values |= {"remediator": {"config": {"scheduler": {"kubernetes": {"owner": "second"}}}}}
    found = policies_with(values)
    second = both(hold, put("metadata", "annotations", "gpu-healthd.dev/owner", value="second"))
    ours = node(metadata={"labels": {"pool": "h100"}})
    assert denied(ours, second, policies=found) == ""
    assert "neither a whole hold" in denied(ours, hold, policies=found)
    assert "no GPU node" in denied(node(), second, policies=found)
    values["remediator"]["config"]["scheduler"]["kubernetes"]["node_selector"] = "pool in (a, b)"
    assert denied(node(), second, policies=policies_with(values)) == "", "a selector of its own is the site's to guard"

"""Changing nodes while others do too: conflicts, operators, nodes born again, a server that refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from tests.conftest import skip_or_fail
from tests.nodes.fake_kubernetes.admission import why_not
from tests.nodes.fake_kubernetes.cluster import Cluster, running

OURS = "gpu-healthd: inc-1 XID 79"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as found:
        yield found


def seen(found: KubernetesScheduler, node: str = "node1") -> SchedulerNodeState:
    return found.observe([node])[node]


def condition(cluster: Cluster, node: str = "node1") -> dict[str, Any]:
    return next((c for c in cluster.see(node)["status"]["conditions"] if c["type"] == "AcceleratorsHealthy"), {})


def test_a_write_that_others_overtook_is_decided_anew_on_what_they_left(cluster: Cluster) -> None:
    cluster.server.before_write += [lambda: cluster.kubectl.patch_node("node1", {"metadata": {"labels": {"x": "1"}}})]
    assert cluster.scheduler().cordon("node1", OURS).result is ActionResult.DONE
    assert cluster.see("node1")["metadata"]["labels"]["x"] == "1"


def test_an_operator_who_cordons_between_our_look_and_our_write_wins(cluster: Cluster) -> None:
    cluster.server.before_write += [lambda: cluster.cordon("node1", "mine")]
    refused = cluster.scheduler().cordon("node1", OURS)
    assert (refused.result, refused.detail) == (ActionResult.REFUSED, "an operator holds node1: mine")
    assert [taint["key"] for taint in cluster.see("node1")["spec"]["taints"]] == ["nvidia.com/gpu"]


def test_an_operator_who_takes_over_between_our_look_and_our_lift_wins(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node1", OURS)
    cluster.server.before_write += [lambda: cluster.annotate("node1", "mine now")]
    assert ours.resume("node1").result is ActionResult.REFUSED
    assert cluster.see("node1")["spec"]["unschedulable"] is True


def test_a_node_that_never_stands_still_is_tried_again_later(cluster: Cluster) -> None:
    def label() -> None:
        cluster.kubectl.patch_node("node1", {"metadata": {"labels": {"x": str(len(cluster.server.asked))}}})

    cluster.server.before_write += [label] * 4
    failed = cluster.scheduler().cordon("node1", OURS)
    assert failed.result is ActionResult.FAILED
    assert "other clients changed node1" in failed.detail


def test_an_operator_who_uncordons_and_cordons_again_owns_the_node(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node1", OURS)
    cluster.uncordon("node1")
    cluster.cordon("node1")
    assert ours.resume("node1").result is ActionResult.REFUSED
    assert (seen(ours).owner, seen(ours).reason) == (HoldOwner.OPERATOR, "cordoned again by kubectl-cordon")


def test_our_taint_goes_when_an_operator_uncordons(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node1", OURS)
    cluster.uncordon("node1")

    def clean() -> bool:
        seen(ours)
        return [taint["key"] for taint in cluster.see("node1")["spec"]["taints"]] == ["nvidia.com/gpu"]

    wait_until_ready(clean, 90, "our taint to go")
    assert "annotations" not in cluster.see("node1")["metadata"]
    wait_until_ready(lambda: condition(cluster)["status"] == "True", 90, "our condition to be good")


def test_what_we_left_on_a_node_stays_once_an_operator_says_hands_off(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node1", OURS)
    cluster.kubectl.patch_node("node1", {"metadata": {"labels": {"gpu-healthd.dev/hands-off": ""}}})
    cluster.uncordon("node1")
    before = cluster.see("node1")
    asked = len(cluster.server.asked)
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the label to be seen")
    assert cluster.see("node1") == before
    assert "patch" not in {asked.verb for token, asked in cluster.server.asked[asked:] if token == "centre"}


def test_a_cordon_of_others_is_lifted_only_where_the_sites_policy_lets_us(cluster: Cluster) -> None:
    """By default the API server refuses it, whoever asks with our token, and a person is told what to do instead."""
    if why := why_not():
        skip_or_fail(why)
    ours = cluster.scheduler()
    cluster.cordon("node1", "fan")
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the cordon to be seen")
    refused = ours.uncordon_for("node1", "fan")
    assert refused.result is ActionResult.FAILED
    assert "kubectl uncordon" in refused.detail
    assert cluster.see("node1")["spec"]["unschedulable"] is True


def test_the_condition_follows_the_hold_and_spares_all_others(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    assert not condition(cluster)
    ours.cordon("node1", OURS)
    assert (condition(cluster)["status"], condition(cluster)["message"]) == ("False", OURS)
    cluster.kubectl.patch_node_status(
        "node1", {"status": {"conditions": [{"type": "AcceleratorsHealthy", "$patch": "delete"}]}}
    )
    assert ours.cordon("node1", OURS).result is ActionResult.ALREADY  # asked for again, as after a crash in between
    assert condition(cluster)["status"] == "False"
    ours.resume("node1")
    assert condition(cluster)["status"] == "True"
    assert [c["type"] for c in cluster.see("node1")["status"]["conditions"]] == ["Ready", "AcceleratorsHealthy"]


def test_a_second_centre_carries_on_what_the_first_began(cluster: Cluster) -> None:
    cluster.scheduler().cordon("node1", OURS)
    second = cluster.scheduler()
    assert second.cordon("node1", OURS).result is ActionResult.ALREADY
    assert second.resume("node1").result is ActionResult.DONE


def test_another_owners_hold_is_not_ours_to_lift(cluster: Cluster) -> None:
    cluster.scheduler().cordon("node1", OURS)
    other = cluster.scheduler(owner="other-centre")
    assert other.resume("node1").result is ActionResult.REFUSED
    assert seen(other).owner is HoldOwner.OPERATOR


def test_a_node_born_again_under_its_name_is_free_of_the_old_ones_hold(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node1", OURS)
    assert seen(ours).owner is HoldOwner.US
    marks = cluster.see("node1")["metadata"]["annotations"]
    cluster.store.delete("nodes", "", "node1")
    wait_until_ready(lambda: seen(ours).schedulable is None, 90, "the node to be gone")
    cluster.node("node1", annotations=marks)  # restored from a copy, marks and all
    assert ours.resume("node1").result is ActionResult.ALREADY
    wait_until_ready(lambda: seen(ours).schedulable is True, 90, "the node to be back")
    cluster.cordon("node1")
    assert ours.resume("node1").result is ActionResult.REFUSED


def test_a_node_replaced_between_our_look_and_our_write_is_not_cordoned_for_the_old_one(cluster: Cluster) -> None:
    def replaced() -> None:
        cluster.store.delete("nodes", "", "node1")
        cluster.node("node1")

    cluster.server.before_write += [replaced]
    cluster.scheduler().cordon("node1", OURS)
    (first, second) = [body for _, what, body in cluster.server.bodies if what == "PATCH /api/v1/nodes/node1"]
    assert first["metadata"]["uid"] != second["metadata"]["uid"] == cluster.see("node1")["metadata"]["uid"]


def test_a_node_that_goes_for_good_is_unknown_and_no_operators(cluster: Cluster) -> None:
    cluster.server.before_write += [lambda: cluster.store.delete("nodes", "", "node1")]
    ours = cluster.scheduler()
    assert ours.cordon("node1", OURS).result is ActionResult.UNKNOWN
    answer = ours.resume("node1")
    assert answer.result is ActionResult.UNKNOWN
    assert "has no node node1" in answer.detail
    wait_until_ready(lambda: not seen(ours).known, 90, "the watch to say the same")


def test_nodes_outside_the_selector_are_not_ours(cluster: Cluster) -> None:
    cluster.node("gpu1", labels={"pool": "gpu", "zone": "b"})
    ours = cluster.scheduler(node_selector="pool in (gpu, new),zone!=a")
    assert seen(ours, "gpu1").schedulable is True
    assert seen(ours, "node1").schedulable is None
    assert ours.cordon("node1", OURS).result is ActionResult.UNKNOWN
    assert ours.cordon("gpu1", OURS).result is ActionResult.DONE


def test_a_node_labelled_hands_off_is_left_alone(cluster: Cluster) -> None:
    ours = cluster.scheduler()
    ours.cordon("node2", OURS)
    for node in ("node1", "node2"):
        cluster.kubectl.patch_node(node, {"metadata": {"labels": {"gpu-healthd.dev/hands-off": "true"}}})
    assert ours.cordon("node1", OURS).result is ActionResult.REFUSED
    assert ours.resume("node2").result is ActionResult.REFUSED
    assert ours.evict("node2").result is ActionResult.REFUSED


def test_a_node_that_kubernetes_took_out_is_held_with_both_reasons(cluster: Cluster) -> None:
    gone = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"}
    cluster.kubectl.patch_node_status("node1", {"status": {"conditions": [gone]}})
    ours = cluster.scheduler()
    assert seen(ours).owner is HoldOwner.SCHEDULER
    assert ours.cordon("node1", OURS).result is ActionResult.DONE
    assert seen(ours).reason == f"{OURS} (Kubernetes: not ready (NodeStatusUnknown: Kubelet stopped posting))"


def test_without_rights_nothing_is_claimed(cluster: Cluster) -> None:
    rules = cluster.server.rules["centre"]
    assert rules is not None
    cluster.server.rules["centre"] = [rule for rule in rules if rule["resources"] != ["nodes"]]
    ours = cluster.scheduler()
    assert "cannot list resource nodes" in seen(ours).reason
    assert ours.cordon("node1", OURS).result is ActionResult.FAILED
    del cluster.server.rules["centre"]
    assert "Unauthorized" in ours.cordon("node1", OURS).detail


def test_a_condition_that_cannot_be_written_spoils_no_cordon(cluster: Cluster) -> None:
    rules = cluster.server.rules["centre"]
    assert rules is not None
    cluster.server.rules["centre"] = [rule for rule in rules if rule["resources"] != ["nodes/status"]]
    done = cluster.scheduler().cordon("node1", OURS)
    assert done.result is ActionResult.DONE
    assert "its condition was not written" in done.detail

"""Asking pods to leave, and which jobs they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from tests.nodes.fake_kubernetes.cluster import Cluster, running
from vocabulary.clock import ManualClock

OURS = "gpu-healthd: inc-1 XID 79"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as found:
        yield found


def holding(cluster: Cluster, **changes: Any) -> KubernetesScheduler:
    found = cluster.scheduler(**changes)
    found.observe(["node1"])
    assert found.cordon("node1", OURS).result is ActionResult.DONE
    return found


def seen(found: KubernetesScheduler) -> SchedulerNodeState:
    return found.observe(["node1"])["node1"]


def ending(cluster: Cluster) -> dict[str, int]:
    pods = [pod["metadata"] for pod in cluster.store.things["pods"].values()]
    return {meta["name"]: meta["deletionGracePeriodSeconds"] for meta in pods if "deletionTimestamp" in meta}


def test_work_is_asked_to_leave_with_time_to_save_and_nothing_else_is(cluster: Cluster) -> None:
    daemons = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d", "uid": "u"}}
    cluster.pod("node1", "short", grace=30)
    cluster.pod("node1", "long", grace=900)
    cluster.pod("node1", "daemon", "kube-system", maker=daemons)
    cluster.pod("node1", "mirror", "kube-system", annotations={"kubernetes.io/config.mirror": "x"})
    cluster.pod("node1", "ours", "gpu-health")
    cluster.pod("node2", "elsewhere")
    ours = holding(cluster)
    assert ours.evict("node1").detail == "2 pods asked to leave node1"
    assert ending(cluster) == {"short": 120, "long": 900}
    assert ours.evict("node1").result is ActionResult.DONE  # again, as after a crash in between: nobody is asked twice
    assert len([what for _, what, _ in cluster.server.bodies if what.endswith("/eviction")]) == 2
    wait_until_ready(lambda: len(seen(ours).jobs) == 2, 90, "the pods to be seen")
    assert seen(ours).drained is False
    for name in ("short", "long"):
        cluster.store.delete("pods", "research", name)
    wait_until_ready(lambda: seen(ours).drained, 90, "node1 to be drained")
    assert ours.evict("node1").result is ActionResult.ALREADY


def test_a_disruption_budget_is_obeyed_and_never_got_round(cluster: Cluster) -> None:
    cluster.budget("keep", {"app": "kept"}, allowed=0)
    cluster.pod("node1", "kept", labels={"app": "kept"})
    cluster.pod("node1", "free")
    ours = holding(cluster)
    for _ in range(3):
        failed = ours.evict("node1")
        assert failed.result is ActionResult.FAILED
        assert "research/kept: The disruption budget keep needs all its pods" in failed.detail
    assert set(ending(cluster)) == {"free"}
    assert not [asked for _, asked in cluster.server.asked if asked.verb == "delete"]
    cluster.store.change(
        "poddisruptionbudgets",
        "research",
        "keep",
        {"status": {"disruptionsAllowed": 1}},
        "merge",
        "controller",
        "status",
    )
    assert ours.evict("node1").result is ActionResult.DONE


def test_a_busy_server_is_not_mistaken_for_a_budget(cluster: Cluster) -> None:
    cluster.pod("node1", "worker")
    ours = holding(cluster)
    cluster.server.busy = 2
    assert ours.evict("node1").result is ActionResult.DONE
    cluster.server.busy, cluster.server.retry_after = 1, "3600"
    assert "too busy" in ours.evict("node1").detail


def test_two_budgets_over_one_pod_are_told_to_people(cluster: Cluster) -> None:
    for name in ("a", "b"):
        cluster.budget(name, {"app": "kept"}, allowed=1)
    cluster.pod("node1", "kept", labels={"app": "kept"})
    assert "more than one PodDisruptionBudget" in holding(cluster).evict("node1").detail


def test_a_pod_that_took_the_name_of_the_one_we_meant_is_spared(cluster: Cluster) -> None:
    cluster.pod("node1", "worker")

    def replaced() -> None:
        cluster.store.delete("pods", "research", "worker")
        cluster.pod("node2", "worker")

    ours = holding(cluster)
    cluster.server.before_write += [replaced]
    assert ours.evict("node1").result is ActionResult.DONE
    assert ending(cluster) == {}


def test_a_pod_that_is_gone_already_is_no_failure(cluster: Cluster) -> None:
    cluster.pod("node1", "worker")
    ours = holding(cluster)
    cluster.server.before_write += [lambda: cluster.store.delete("pods", "research", "worker")]
    assert ours.evict("node1").result is ActionResult.DONE


def test_nothing_is_evicted_from_a_node_that_we_do_not_hold(cluster: Cluster) -> None:
    cluster.pod("node1", "worker")
    ours = holding(cluster)
    cluster.annotate("node1", "mine now")
    assert ours.evict("node1").result is ActionResult.REFUSED
    assert ours.evict("node2").result is ActionResult.REFUSED
    assert ours.evict("elsewhere").result is ActionResult.UNKNOWN
    assert ending(cluster) == {}


def test_work_is_evictable_only_where_the_site_says_so_and_after_its_time(cluster: Cluster) -> None:
    cluster.pod("node1", "worker")
    clock = ManualClock()
    patient = cluster.scheduler(clock)
    quick = cluster.scheduler(clock, evict_after_s=600.0)
    for found in (patient, quick):
        wait_until_ready(lambda found=found: seen(found).jobs != (), 90, "the pod to be seen")  # type: ignore[misc]  # a bound default
    assert seen(quick).evictable is False
    patient.cordon("node1", OURS)
    wait_until_ready(lambda: seen(quick).owner is HoldOwner.US, 90, "the hold to be seen")
    assert seen(quick).evictable is False
    clock.advance(601)
    assert (seen(quick).evictable, seen(patient).evictable) == (True, False)


@pytest.mark.parametrize(
    ("chain", "job"),
    [
        ((), "Pod/research/p"),
        ((("jobs", "j"),), "Job/research/j"),
        ((("jobsets", "s"), ("jobs", "s-node-0")), "JobSet/research/s"),
        ((("trainjobs", "t"), ("jobsets", "t"), ("jobs", "t-node-0")), "TrainJob/research/t"),
    ],
)
def test_a_pod_belongs_to_what_its_user_made(cluster: Cluster, chain: tuple[tuple[str, str], ...], job: str) -> None:
    maker = None
    for plural, name in chain:
        maker = cluster.made(plural, name, maker)
    cluster.pod("node1", "p", maker=maker)
    ours = cluster.scheduler()
    assert seen(ours).jobs == (job,)
    before = len(cluster.server.asked)
    assert seen(ours).jobs == (job,)
    assert not [asked for _, asked in cluster.server.asked[before:] if asked.verb == "get"]


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [("kubeflow.org/v1", "PyTorchJob"), ("batch.volcano.sh/v1alpha1", "Job"), ("ray.io/v1", "RayCluster")],
)
def test_makers_that_are_the_users_own_need_no_question(cluster: Cluster, api_version: str, kind: str) -> None:
    maker = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "m", "uid": "u"}}
    for _ in range(3):
        cluster.pod("node1", maker=maker)
    ours = cluster.scheduler()
    assert seen(ours).jobs == (f"{kind}/research/m",)
    assert {asked.verb for _, asked in cluster.server.asked} <= {"list", "watch"}


def test_bare_pods_of_a_kueue_group_are_one_workload(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.pod("node1", labels={"kueue.x-k8s.io/pod-group-name": "g"})
    assert seen(cluster.scheduler()).jobs == ("Workload/research/g",)


def test_a_maker_that_is_gone_or_may_not_be_seen_goes_by_the_pods_own_word(cluster: Cluster) -> None:
    gone = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "gone", "uid": "u"}}
    cluster.pod("node1", maker=gone)
    cluster.pod("node1", maker=cluster.made("jobsets", "s"))
    rules = cluster.server.rules["centre"]
    assert rules is not None
    cluster.server.rules["centre"] = [rule for rule in rules if rule["resources"] != ["jobsets"]]
    assert seen(cluster.scheduler()).jobs == ("Job/research/gone", "JobSet/research/s")

"""The watches: what is believed while the API server drops, forgets, throttles, hangs or is gone; and what it all costs."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.kubernetes.api_connection import ApiAnswer
from remediator.schedulers.kubernetes.api_objects import Node, NodeMeta
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.schedulers.kubernetes.watch_cache import WatchCache
from tests.nodes.fake_kubernetes.cluster import Cluster, running

OURS = "gpu-healthd: inc-1 XID 79"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path) as found:
        yield found


def watching(cluster: Cluster, **changes: Any) -> KubernetesScheduler:
    found = cluster.scheduler(**changes)
    found.observe(["node1"])
    return found


def seen(found: KubernetesScheduler, node: str = "node1") -> SchedulerNodeState:
    return found.observe([node])[node]


def deafen(cluster: Cluster, cache: WatchCache[Any]) -> None:
    """A watch that hears nothing more, though it looks well."""
    cache.close()
    cluster.server.drops += 1
    wait_until_ready(lambda: not cache._thread.is_alive(), 90, "the watch to end")
    cache._connected, cache._heard_at = True, sys.maxsize


def times(cluster: Cluster, verb: str, resource: str = "nodes") -> int:
    return sum(asked.verb == verb and asked.resource == resource for _, asked in cluster.server.asked)


def test_a_watch_that_is_dropped_goes_on_where_it_was(cluster: Cluster) -> None:
    ours = watching(cluster, stale_after_s=600.0)  # a busy machine must not make it list anew
    wait_until_ready(lambda: times(cluster, "watch") == 1, 90, "the first watch")
    cluster.server.drops += 1
    wait_until_ready(lambda: times(cluster, "watch") == 2, 90, "the second watch")
    cluster.cordon("node1", "mine")
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the cordon to be seen")
    assert times(cluster, "list") == 1


def test_a_loss_is_told_in_the_same_words_until_it_is_over(cluster: Cluster) -> None:
    ours = watching(cluster)
    cluster.server.dark.set()
    wait_until_ready(lambda: bool(ours._nodes.stale()), 90, "the watch to be stale")
    told = seen(ours)
    ours._nodes._lost("another error with an address 0x7f00")
    assert seen(ours) == told


def test_a_watch_that_fell_too_far_behind_lists_anew(cluster: Cluster) -> None:
    ours = watching(cluster)
    cluster.server.dark.set()
    wait_until_ready(lambda: seen(ours).schedulable is None, 90, "the watch to be stale")
    cluster.store.change("nodes", "", "node1", {"spec": {"unschedulable": True}}, "merge", "kubectl", "")
    cluster.store.delete("nodes", "", "node2")
    cluster.store.forget()
    cluster.server.dark.clear()
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the new list")
    assert times(cluster, "list") > 1
    assert "has no node node2" in seen(ours, "node2").reason


def test_what_went_stale_is_listed_anew_before_it_is_believed(cluster: Cluster) -> None:
    ours = watching(cluster)
    cluster.server.dark.set()
    wait_until_ready(
        lambda: not ours._nodes._connected and ours._nodes.stale() != "", 90, "the watch to be lost and stale"
    )
    assert seen(ours).schedulable is None
    cluster.server.dark.clear()
    wait_until_ready(lambda: seen(ours).schedulable is True, 90, "the watch to be current")
    assert times(cluster, "list") > 1


def test_a_list_that_was_read_while_we_wrote_does_not_undo_what_we_wrote() -> None:
    class Slow:
        def call(self, *_: object) -> ApiAnswer:
            cache.put(Node(NodeMeta(name="node1", resource_version="8")), "8")
            page = {"metadata": {"resourceVersion": "7"}, "items": [listed("node1", "6"), listed("node2", "5")]}
            return ApiAnswer(200, json.dumps(page).encode())

    def listed(name: str, version: str) -> dict[str, Any]:
        return {"metadata": {"name": name, "resourceVersion": version}}

    cache: WatchCache[Node] = WatchCache(Slow(), KubernetesOptions(), "/api/v1/nodes", {}, Node)  # type: ignore[arg-type]  # all that it calls
    cache._list()
    assert {key: node.metadata.resource_version for key, node in cache.items().items()} == {"node1": "8", "node2": "5"}


def test_bookmarks_carry_a_quiet_watch_over_what_is_forgotten(cluster: Cluster) -> None:
    ours = watching(cluster, stale_after_s=600.0)
    for number in range(5):
        cluster.pod("elsewhere", name=f"other{number}")
    wait_until_ready(lambda: ours._nodes._version == str(cluster.store.version), 90, "a bookmark")
    cluster.store.forget()
    cluster.server.drops += 1
    wait_until_ready(lambda: times(cluster, "watch") == 2, 90, "the second watch")
    cluster.cordon("node1", "mine")
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the cordon to be seen")
    assert times(cluster, "list") == 1


def test_a_server_that_hangs_is_no_answer_and_holds_nobody_up(cluster: Cluster) -> None:
    ours = watching(cluster, deadline_s=0.5, quiet_s=0.4)
    cluster.server.silent.set()
    failed = ours.cordon("node1", OURS)
    assert (failed.result, "cannot be reached" in failed.detail) == (ActionResult.FAILED, True)
    wait_until_ready(lambda: seen(ours).schedulable is None, 90, "the watch to be stale")
    assert "cannot be reached" in seen(ours).reason
    cluster.server.silent.clear()
    wait_until_ready(lambda: seen(ours).schedulable is True, 90, "the watch to be current")


def test_a_server_that_is_busy_is_given_the_time_it_asks_for(cluster: Cluster) -> None:
    ours = watching(cluster)
    cluster.server.busy = 3
    assert ours.cordon("node1", OURS).result is ActionResult.DONE
    cluster.server.busy, cluster.server.retry_after = 1, "3600"
    failed = ours.resume("node1")
    assert (failed.result, "asks to wait 3600 s" in failed.detail) == (ActionResult.FAILED, True)
    before = len(cluster.server.asked)
    again = ours.resume("node1")
    assert (again.result, "limits the request rate" in again.detail) == (ActionResult.FAILED, True)
    assert len(cluster.server.asked) == before


def test_a_machine_that_sleeps_past_the_deadline_is_said_to(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = cluster.scheduler(deadline_s=0.5)
    ours._connection._closed_until = time.monotonic() + 0.3
    really = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: really(seconds + 0.5))
    failed = ours.cordon("node1", OURS)
    assert (failed.result, "too busy" in failed.detail) == (ActionResult.FAILED, True)


@pytest.mark.parametrize("code", [500, 503])
def test_a_server_that_fails_is_said_to_and_asked_again(cluster: Cluster, code: int) -> None:
    ours = watching(cluster, deadline_s=0.5)
    cluster.server.failing = code
    failed = ours.cordon("node1", OURS)
    assert (failed.result, "etcdserver" in failed.detail) == (ActionResult.FAILED, True)
    cluster.server.failing = 0
    wait_until_ready(lambda: ours.cordon("node1", OURS).result is ActionResult.DONE, 90, "the cordon")


def test_what_was_done_and_answered_500_is_found_done_and_not_done_twice(cluster: Cluster) -> None:
    ours = watching(cluster)
    cluster.server.failing_late = True
    failed = ours.cordon("node1", OURS)
    assert (failed.result, "etcdserver" in failed.detail) == (ActionResult.FAILED, True)
    cluster.server.failing_late = False
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.US, 90, "our own hold to be seen")
    assert ours.cordon("node1", OURS).result is ActionResult.ALREADY


def test_a_watch_that_the_server_is_too_busy_for_is_opened_later(cluster: Cluster) -> None:
    ours = watching(cluster, stale_after_s=600.0)
    cluster.server.busy_watches = 2
    cluster.server.drops += 1
    wait_until_ready(lambda: cluster.server.busy_watches == 0, 90, "two refusals")
    cluster.cordon("node1", "mine")
    wait_until_ready(lambda: seen(ours).owner is HoldOwner.OPERATOR, 90, "the cordon to be seen")
    assert times(cluster, "list") == 1


def test_calls_beyond_the_pace_are_not_made(cluster: Cluster) -> None:
    failed = cluster.scheduler(calls_per_s=0.001).resume("node1")
    assert (failed.result, "limits the request rate" in failed.detail) == (ActionResult.FAILED, True)
    assert cluster.server.asked == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (KubernetesOptions(kubeconfig="/nowhere/kubeconfig"), "no Kubernetes configuration from /nowhere/kubeconfig"),
        (KubernetesOptions(deadline_s=0.5), "no Kubernetes configuration from the service account of this pod"),
    ],
)
def test_a_way_in_that_is_missing_is_named(options: KubernetesOptions, says: str) -> None:
    ours = KubernetesScheduler(options)
    assert says in ours.cordon("node1", OURS).detail
    wait_until_ready(lambda: says in seen(ours).reason, 90, "the reason")
    assert seen(ours).schedulable is None
    ours.close()


def test_a_pod_that_was_on_its_way_keeps_its_node_from_being_called_empty(cluster: Cluster) -> None:
    ours = watching(cluster, settle_s=3600.0)
    ours.cordon("node1", OURS)
    assert (seen(ours).schedulable, seen(ours).drained) == (False, False)
    assert seen(watching(cluster)).drained is True


def test_the_caches_word_alone_does_not_call_a_node_empty(cluster: Cluster) -> None:
    ours = watching(cluster)
    deafen(cluster, ours._pods)
    cluster.pod("node1")
    ours.cordon("node1", OURS)
    assert (seen(ours).jobs, seen(ours).drained) == ((), False)


def test_what_we_wrote_is_seen_at_once_and_never_unseen_again(cluster: Cluster) -> None:
    ours = watching(cluster)
    deafen(cluster, ours._nodes)
    before = ours._nodes.items()["node1"]
    ours.cordon("node1", OURS)
    assert seen(ours).owner is HoldOwner.US
    ours._nodes.put(before, before.metadata.resource_version)  # an answer that was long on its way
    assert seen(ours).owner is HoldOwner.US
    held = ours._nodes.items()["node1"]
    ours._nodes._items.clear()
    ours._nodes.put(held, held.metadata.resource_version)  # of an object that is gone
    assert not ours._nodes.items()


def deep_size(thing: Any, known: set[int]) -> int:
    if id(thing) in known or isinstance(thing, type):
        return 0
    known.add(id(thing))
    return sys.getsizeof(thing) + sum(deep_size(part, known) for part in gc.get_referents(thing))


def test_a_thousand_nodes_are_listed_in_pages_and_kept_small(tmp_path: Path) -> None:
    with running(tmp_path, nodes=0) as cluster:
        labels = {f"feature.node.kubernetes.io/cpu-feature-{n}": "true" for n in range(100)}
        for number in range(1000):
            cluster.node(f"node{number}", labels=labels, annotations={"csi": "x" * 2000})
        wire = len(json.dumps(cluster.see("node1")))
        ours = cluster.scheduler(deadline_s=60.0)
        nodes = [f"node{number}" for number in range(1000)]
        assert {hold.schedulable for hold in ours.observe(nodes).values()} == {True}
        cluster.cordon("node999", "mine")
        wait_until_ready(lambda: seen(ours, "node999").owner is HoldOwner.OPERATOR, 90, "the cordon to be seen")
        assert times(cluster, "list") == 2  # two pages
        assert deep_size(ours._nodes._items, set()) / 1000 < min(5000, wire)


def test_labels_say_where_nodes_stand_under_our_keys_or_the_sites_own(cluster: Cluster) -> None:
    labels = {"gpu-healthd.dev/rack": "r1", "gpu-healthd.dev/driver": "570", "topology.kubernetes.io/zone": "z1"}
    cluster.node("node3", labels={**labels, "gpu-healthd.dev/hands-off": ""})
    ours = cluster.scheduler()
    assert (ours.places() or {})["node3"] == NodeLocation(rack="r1", driver="570")
    assert (ours.places() or {})["node1"] == NodeLocation()
    theirs = cluster.scheduler(place_labels={"rack": "topology.kubernetes.io/zone"})
    assert (theirs.places() or {})["node3"] == NodeLocation(rack="z1", driver="570")
    assert seen(theirs, "node3").owner is HoldOwner.OPERATOR, "the other labels are read as before"


def test_where_nodes_stand_is_not_known_while_nobody_answers(cluster: Cluster) -> None:
    ours = watching(cluster, deadline_s=0.5, quiet_s=0.4)
    wait_until_ready(lambda: ours.places() is not None, 90, "the first list")
    cluster.server.silent.set()
    wait_until_ready(lambda: ours.places() is None, 90, "the watch to be stale")
    cluster.server.silent.clear()

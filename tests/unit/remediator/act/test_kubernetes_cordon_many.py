"""Cordons of many nodes: one list, conditional writes side by side, and others who change nodes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from remediator.schedulers.scheduler_protocol import NodeCordon
from tests.nodes.fake_kubernetes.cluster import Cluster, running

COUNT = 30
NODES = tuple(f"node{n}" for n in range(1, COUNT + 1))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running(tmp_path, COUNT) as found:
        yield found


class Lead:
    """Lets cordons begin, and calls `first` before the call of that number; all others wait for it."""

    def __init__(self, number: int = 0, first: Callable[[], None] = lambda: None, allowed: int = 10**6) -> None:
        self._calls = 0
        self._number, self._first, self._allowed = number, first, allowed
        self._lock = threading.Lock()

    def __call__(self, nodes: Collection[str]) -> Collection[str]:
        with self._lock:
            self._calls += 1
            if self._calls == self._number:
                self._first()
            return nodes if self._calls <= self._allowed else ()


def cordon(scheduler: KubernetesScheduler, lead: Lead | None = None) -> dict[str, ActionOutcome]:
    cordons = [NodeCordon(node, f"gpu-healthd: inc-{node} gpu-lost", "gpu-lost") for node in NODES]
    return dict(scheduler.cordon_many(cordons, lead or Lead()))


def condition(cluster: Cluster, node: str) -> dict[str, Any]:
    return next((c for c in cluster.see(node)["status"]["conditions"] if c["type"] == "AcceleratorsHealthy"), {})


def test_one_list_then_all_holds_then_all_conditions(cluster: Cluster) -> None:
    outcomes = cordon(cluster.scheduler())
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.DONE}
    asked = [(each.verb, each.resource) for _, each in cluster.server.asked]
    holds, conditions = [("patch", "nodes")] * COUNT, [("patch", "nodes/status")] * COUNT
    assert asked == [("list", "nodes"), *holds, *conditions]
    for node in NODES:
        reason = f"gpu-healthd: inc-{node} gpu-lost"
        assert cluster.see(node)["metadata"]["annotations"]["gpu-healthd.dev/reason"] == reason
        assert condition(cluster, node)["message"] == reason


def test_what_others_changed_since_the_list_is_decided_again(cluster: Cluster) -> None:
    def others() -> None:
        cluster.cordon("node7", "mine")
        cluster.kubectl.patch_node("node8", {"metadata": {"labels": {"x": "1"}}})
        cluster.kubectl.delete_node("node9")

    outcomes = cordon(cluster.scheduler(), Lead(1, others))
    assert (outcomes["node7"].result, outcomes["node7"].detail) == (
        ActionResult.REFUSED,
        "an operator holds node7: mine",
    )
    assert outcomes["node8"].result is ActionResult.DONE
    assert cluster.see("node8")["metadata"]["labels"]["x"] == "1"
    assert outcomes["node9"].result is ActionResult.UNKNOWN
    assert sum(outcome.result is ActionResult.DONE for outcome in outcomes.values()) == COUNT - 2


def test_without_a_list_each_node_is_read_for_itself(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = cluster.scheduler()
    monkeypatch.setattr(scheduler, "_listed", dict)
    assert {outcome.result for outcome in cordon(scheduler).values()} == {ActionResult.DONE}


def test_a_hold_lifted_before_its_condition_is_written_is_not_shown_as_held(cluster: Cluster) -> None:
    scheduler = cluster.scheduler()
    scheduler.observe(NODES)

    def lift() -> None:
        for node in ("node1", NODES[-1]):
            cluster.uncordon(node)
        wait_until_ready(
            lambda: all(scheduler.observe(NODES)[node].schedulable for node in ("node1", NODES[-1])), 60, "the watch"
        )

    cordon(scheduler, Lead(COUNT + 1, lift))  # every hold is placed, and the first condition is next
    assert condition(cluster, "node1").get("status") != "False"
    assert condition(cluster, NODES[1])["status"] == "False"


def test_after_the_end_of_the_term_no_condition_is_written(cluster: Cluster) -> None:
    outcomes = cordon(cluster.scheduler(), Lead(allowed=COUNT))
    assert {outcome.result for outcome in outcomes.values()} == {ActionResult.DONE}
    assert not any(condition(cluster, node) for node in NODES)


def test_with_a_slow_pace_the_pace_is_kept(cluster: Cluster) -> None:
    """Side by side, calls wait for the client's rate limit; none fails for it."""
    scheduler = cluster.scheduler(calls_per_s=25.0)
    assert {outcome.result for outcome in cordon(scheduler).values()} == {ActionResult.DONE}

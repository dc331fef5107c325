"""Cordons of many nodes in one call, for every scheduler backend: each node gets the answer that it would get alone."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from healthctl.demo.slurm_cluster import SlurmCluster
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner
from remediator.schedulers.scheduler_protocol import CordonsTogether, NodeCordon
from tests.contract import test_scheduler
from tests.contract.test_scheduler import SlurmWorld, World, see

world = test_scheduler.world
DONE, ALREADY, REFUSED, FAILED = (
    ActionResult.DONE,
    ActionResult.ALREADY,
    ActionResult.REFUSED,
    ActionResult.FAILED,
)


def cordon(world: World, *nodes: str, but: Collection[str] = ()) -> dict[str, ActionOutcome]:
    """Cordon `nodes` for one rule in one call; those in `but` are no longer wanted by then."""
    assert isinstance(world.scheduler, CordonsTogether)
    cordons = [NodeCordon(node, f"gpu-healthd: inc-{node} gpu-lost", "gpu-lost") for node in nodes]
    outcomes = list(world.scheduler.cordon_many(cordons, lambda asked: [node for node in asked if node not in but]))
    assert len(dict(outcomes)) == len(outcomes), "one outcome each"
    return dict(outcomes)


def results(outcomes: dict[str, ActionOutcome]) -> dict[str, ActionResult]:
    return {node: outcome.result for node, outcome in outcomes.items()}


def test_all_are_held_as_ours_and_each_is_lifted_alone(world: World) -> None:
    assert results(cordon(world, "node1", "node2")) == {"node1": DONE, "node2": DONE}
    for node in ("node1", "node2"):
        hold = see(world, node)
        assert (hold.schedulable, hold.drained, hold.owner) == (False, True, HoldOwner.US)
        assert "gpu-lost" in hold.reason
    assert world.scheduler.resume("node1").result is DONE
    assert see(world, "node2").owner is HoldOwner.US


def test_a_second_time_changes_nothing(world: World) -> None:
    cordon(world, "node1", "node2")
    before = [see(world, node) for node in ("node1", "node2")]
    assert results(cordon(world, "node1", "node2")) == {"node1": ALREADY, "node2": ALREADY}
    assert [see(world, node) for node in ("node1", "node2")] == before


def test_an_operators_hold_among_them_wins_and_delays_no_other(world: World) -> None:
    world.operator_holds("node1", "fan replacement")
    outcomes = cordon(world, "node1", "node2")
    assert results(outcomes) == {"node1": REFUSED, "node2": DONE}
    assert "fan replacement" in outcomes["node1"].detail
    assert (see(world).owner, see(world).reason) == (HoldOwner.OPERATOR, "fan replacement")


def test_an_unknown_name_among_them_delays_no_other(world: World) -> None:
    outcomes = cordon(world, "node1", "elsewhere", "node2")
    assert (outcomes["node1"].result, outcomes["node2"].result) == (DONE, DONE)
    assert outcomes["elsewhere"].result is world.scheduler.cordon("nowhere", "gpu-healthd: x").result


def test_what_is_no_longer_wanted_is_left_alone_and_has_no_outcome(world: World) -> None:
    assert results(cordon(world, "node1", "node2", but=["node2"])) == {"node1": DONE}
    assert see(world, "node2").schedulable is True
    assert see(world).reason == "gpu-healthd: inc-node1 gpu-lost", "alone, it has its own reason"


def test_a_scheduler_that_cannot_be_asked_fails_each(world: World) -> None:
    world.go_dark()
    try:
        outcomes = cordon(world, "node1", "node2")
    finally:
        world.come_back()
    assert results(outcomes) == {"node1": FAILED, "node2": FAILED}
    assert all(outcome.detail for outcome in outcomes.values())


@pytest.mark.slurm
def test_slurm_shows_one_line_for_all(slurm_cluster: SlurmCluster) -> None:
    slurm = SlurmWorld(slurm_cluster)
    slurm.clean()
    try:
        slurm.operator_holds("node3", "fan")
        outcomes = cordon(slurm, *(f"node{n}" for n in range(1, 6)))
        reason = "gpu-healthd: gpu-lost on 4 nodes; incident: healthctl nodes show NODE"
        assert outcomes["node5"].detail == f"Slurm drains node5 and 3 more: {reason}"
        shown = slurm_cluster.command("sinfo", "-R", "-h", "-o", "%E|%N").splitlines()
        assert sorted(shown) == ["fan|node3", f"{reason}|node[1-2,4-5]"]
    finally:
        slurm.clean()

"""What only Slurm has, on a real slurmctld with five slurmd: three ways to ask it, requeues, reservations, and its deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from healthctl.demo.slurm_cluster import SlurmCluster, find_program
from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.commands.reservation_commands import slurm_group
from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.slurm.slurm_options import RestOptions, SlurmOptions
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from tests.conftest import skip_or_fail
from tests.contract.test_scheduler import OURS, SlurmWorld

pytestmark = pytest.mark.slurm
NODES = tuple(f"node{number}" for number in range(1, 6))
NOBODY = 65534  # slurmrestd refuses to run as root or as Slurm's own user
PLUGIN = "openapi/v0.0.38"  # Debian 12's newest; the one for slurmdbd does not start without it


@pytest.fixture
def world(slurm_cluster: SlurmCluster) -> Iterator[SlurmWorld]:
    world = SlurmWorld(slurm_cluster)
    world.clean()
    yield world
    world.clean()


@pytest.fixture(scope="module")
def restd(slurm_cluster: SlurmCluster) -> Iterator[str]:
    """The URL of a real slurmrestd on a UNIX socket, run as nobody; whoever connects is known by the kernel."""
    program = find_program("slurmrestd")
    if program is None:
        skip_or_fail("no slurmrestd here (on Debian: apt-get install slurmrestd)")
    place = slurm_cluster.directory / "restd"
    for folder in (place, slurm_cluster.directory, slurm_cluster.directory.parent, slurm_cluster.directory / "munge"):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    os.chown(place, NOBODY, NOBODY)
    socket = place / "s"
    argv = [str(program), "-s", PLUGIN, "-a", "rest_auth/local", f"unix:{socket}"]
    with (slurm_cluster.directory / "log" / "slurmrestd.log").open("ab") as log:
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        process = subprocess.Popen(argv, env=slurm_cluster.env, stdout=log, stderr=log, **nobody)
    try:
        wait_until_ready(lambda: socket.exists() or process.poll() is not None, 90, "slurmrestd")
        assert process.poll() is None, f"slurmrestd ended; see {slurm_cluster.directory / 'log'}"
        yield f"unix:{socket}"
    finally:
        process.kill()
        process.wait()


def asking(world: SlurmWorld, deadline_s: float = 5.0, **options: Any) -> SlurmScheduler:
    return SlurmScheduler(SlurmOptions(conf=str(world.cluster.conf), deadline_s=deadline_s, **options))


def test_three_ways_see_the_same_and_act_the_same(world: SlurmWorld, restd: str) -> None:
    ways = [asking(world), asking(world, ask="json"), asking(world, ask="rest", rest=RestOptions(url=restd))]
    job = world.start_work("node3")
    world.operator_holds("node4", "fan, ask Kim")
    for scheduler in ways:
        assert scheduler.cordon("node1", OURS).result is ActionResult.DONE
        held, working, theirs, free = (scheduler.observe(NODES)[f"node{n}"] for n in (1, 3, 4, 5))
        assert (held.owner, held.drained) == (HoldOwner.US, True)
        assert held.reason.startswith("gpu-healthd: inc-1f3a XID 79 on GPU 3 (0000:3b:00.0)")
        assert (working.schedulable, working.jobs) == (True, (job,))
        assert theirs == SchedulerNodeState(
            "node4", schedulable=False, drained=True, owner=HoldOwner.OPERATOR, reason="fan, ask Kim"
        )
        assert free == SchedulerNodeState("node5", schedulable=True)
        assert scheduler.cordon("node4", OURS).result is ActionResult.REFUSED
        assert scheduler.cordon("elsewhere", OURS).result is ActionResult.UNKNOWN
        assert scheduler.resume("node1").result is ActionResult.DONE
    places = [scheduler.places() for scheduler in ways]
    assert places == [dict.fromkeys(NODES, NodeLocation(partitions=("train",)))] * 3


@pytest.mark.parametrize("name", ["ALL", "node[1-2]", "node1,node2", "--help", "node1 state=down", ""])
def test_a_name_that_means_more_than_one_node_means_none(world: SlurmWorld, restd: str, name: str) -> None:
    for scheduler in (asking(world), asking(world, ask="rest", rest=RestOptions(url=restd))):
        assert scheduler.cordon(name, OURS).result in (ActionResult.UNKNOWN, ActionResult.FAILED)
        assert scheduler.resume(name).result in (ActionResult.UNKNOWN, ActionResult.FAILED)
    assert set(world.cluster.node_states().values()) == {"idle"}


def test_a_slurmrestd_that_is_not_there_says_where_it_was_looked_for(world: SlurmWorld, tmp_path: Path) -> None:
    scheduler = asking(world, ask="rest", rest=RestOptions(url=f"unix:{tmp_path}/none"))
    hold = scheduler.observe(NODES)["node1"]
    assert hold.schedulable is None
    assert f"slurmrestd at unix:{tmp_path}/none" in hold.reason
    assert scheduler.cordon("node1", OURS).result is ActionResult.FAILED


def test_a_job_is_requeued_and_does_not_come_back_to_the_node(world: SlurmWorld) -> None:
    job = world.start_work("node1")
    scheduler = asking(world, requeue_after_s=0.001)
    assert scheduler.observe(NODES)["node1"].evictable is False  # it is not held by us
    assert scheduler.cordon("node1", OURS).result is ActionResult.DONE
    wait_until_ready(lambda: scheduler.observe(NODES)["node1"].evictable, 90, "our drain to be old enough")
    outcome = scheduler.evict("node1")
    assert (outcome.result, outcome.detail) == (ActionResult.DONE, f"requeued from node1: {job}")
    wait_until_ready(lambda: scheduler.observe(NODES)["node1"].drained, 90, "node1 to be empty")
    shown = world.cluster.command("scontrol", "show", "job", job, "--oneliner")
    assert "Restarts=1" in shown
    assert "ExcNodeList=node1 " in shown
    assert scheduler.evict("node1").result is ActionResult.ALREADY


def test_what_is_no_batch_job_stays_and_is_named(world: SlurmWorld) -> None:
    job = world.cluster.command(
        "sbatch", "--parsable", "--no-requeue", "--nodelist=node1", "--output=/dev/null", "--wrap=sleep 600"
    ).strip()
    scheduler = asking(world, requeue_after_s=0.001)
    wait_until_ready(lambda: scheduler.observe(NODES)["node1"].jobs == (job,), 90, "work on node1")
    scheduler.cordon("node1", OURS)
    outcome = scheduler.evict("node1")
    assert outcome.result is ActionResult.FAILED
    assert outcome.detail.startswith(f"not requeued, contact their owners: {job} (")
    assert scheduler.observe(NODES)["node1"].jobs == (job,)


def test_nodes_set_aside_take_no_job_but_the_tests(world: SlurmWorld) -> None:
    scheduler = asking(world)
    assert scheduler.set_aside("pair", ("node1", "node2"), 10).result is ActionResult.DONE
    try:
        assert scheduler.set_aside("pair", ("node1", "node2"), 10).result is ActionResult.ALREADY
        assert scheduler.set_aside("pair", ("node3",), 10).result is ActionResult.REFUSED
        users = world.cluster.command("sbatch", "--parsable", "-N5", "--output=/dev/null", "--wrap=true").strip()
        ran = world.cluster.command("srun", "--reservation=gpu-healthd-pair", "-N2", "hostname")
        assert len(ran.splitlines()) == 2
        assert users in world.cluster.command("squeue", "-h", "-t", "PD", "-o", "%i")
    finally:
        assert scheduler.give_back("pair").result is ActionResult.DONE
    assert scheduler.give_back("pair").result is ActionResult.ALREADY
    wait_until_ready(
        lambda: not world.cluster.command("squeue", "-h").strip(), 60, "the job of five nodes to run after all"
    )


def test_a_person_sets_nodes_aside_by_command(world: SlurmWorld, tmp_path: Path) -> None:
    config = tmp_path / "remediator.yaml"
    config.write_text(f"scheduler: {{kind: slurm, slurm: {{conf: {world.cluster.conf}}}}}\n")

    def ask(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(slurm_group, [*words[:1], "--config", str(config), *words[1:]])
        return done.exit_code, done.output

    assert ask("set-aside", "pair", "node1", "node2") == (0, "gpu-healthd-pair holds node1, node2 for 30 min\n")
    try:
        code, said = ask("set-aside", "pair", "node3")
        assert (code, said.startswith("gpu-healthd-pair holds node1, node2")) == (3, True)
    finally:
        assert ask("give-back", "pair") == (0, "gpu-healthd-pair has ended\n")
    assert ask("set-aside", "a b", "node1")[0] == 1
    config.write_text("scheduler: {kind: local}\n")
    code, said = ask("give-back", "pair")
    assert code == 2
    assert "scheduler.kind is local, not slurm" in said


def test_another_tools_reservation_is_out_of_reach(world: SlurmWorld) -> None:
    made = ("reservationname=maintenance", "nodes=node5", "users=root", "starttime=now", "duration=10", "flags=maint")
    world.cluster.command("scontrol", "create", "reservation", *made)
    try:
        assert asking(world).give_back("maintenance").result is ActionResult.ALREADY
        assert "maintenance" in world.cluster.command("scontrol", "show", "reservation")
    finally:
        world.cluster.command("scontrol", "delete", "reservationname=maintenance")


@pytest.mark.parametrize("ask", ["text", "rest"])
def test_a_slurmctld_that_hangs_costs_the_deadline_and_drains_nothing(world: SlurmWorld, restd: str, ask: str) -> None:
    scheduler = asking(world, ask=ask, rest=RestOptions(url=restd), deadline_s=1.5)
    assert scheduler.observe(NODES)["node1"].schedulable is True
    pid = int((world.cluster.directory / "slurmctld.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        begun, threads = time.monotonic(), set(threading.enumerate())
        answers = scheduler.observe(NODES)
        outcome = scheduler.cordon("elsewhere", OURS)  # of a node that is not there: it must not happen afterwards
        assert {hold.schedulable for hold in answers.values()} == {None}
        assert all("within 1.5 s" in hold.reason for hold in answers.values())
        assert outcome.result is ActionResult.FAILED
        assert time.monotonic() - begun < 30.0
        left = set(threading.enumerate()) - threads
        wait_until_ready(lambda: not any(thread.is_alive() for thread in left), 90, "its threads to end")
    finally:
        os.kill(pid, signal.SIGCONT)
    wait_until_ready(lambda: scheduler.observe(NODES)["node1"].schedulable, 60, "an answer")
    assert {hold.owner for hold in scheduler.observe(NODES).values()} == {HoldOwner.NOBODY}


def test_a_drain_that_a_killed_slurmctld_forgot_is_not_taken_for_an_operators_word(world: SlurmWorld) -> None:
    scheduler = asking(world)
    for _ in range(5):  # it may have been written down in time
        assert scheduler.cordon("node1", OURS).result is ActionResult.DONE
        assert scheduler.observe(NODES)["node1"].owner is HoldOwner.US
        os.kill(int((world.cluster.directory / "slurmctld.pid").read_text()), signal.SIGKILL)
        seen: list[SchedulerNodeState] = []

        def answers(seen: list[SchedulerNodeState] = seen) -> bool:
            seen.append(scheduler.observe(NODES)["node1"])
            return seen[-1].schedulable is not None or not seen[-1].known

        wait_until_ready(answers, 60, "an answer")
        if seen[-1].owner is not HoldOwner.US:
            break
        assert scheduler.resume("node1").result is ActionResult.DONE
    assert "slurmctld restarted and lost the drain of node1" in seen[-1].reason
    assert scheduler.cordon("node1", OURS).result is ActionResult.DONE

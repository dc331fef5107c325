"""One suite for every scheduler backend: whose hold it is decides who may lift it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec
import pytest

from healthctl.demo.slurm_cluster import SlurmCluster
from healthctl.process_supervision.supervised_programs import wait_until_ready
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.local_scheduler import LocalHold, LocalHolds, LocalScheduler
from remediator.schedulers.scheduler_protocol import Scheduler
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_scheduler import SlurmScheduler
from tests.nodes.fake_kubernetes.admission import Policies
from tests.nodes.fake_kubernetes.cluster import Cluster, running
from tests.unit.deploy import chart
from vocabulary.clock import ManualClock

OURS = "gpu-healthd: inc-1f3a XID 79 on GPU 3 (0000:3b:00.0), [root@2026-01-01T00:00:00] State=IDLE"
NODES = ("node1", "node2")


class World(Protocol):
    """A scheduler's cluster as an operator and its users drive it, past our backend."""

    scheduler: Scheduler

    def operator_holds(self, node: str, reason: str) -> None: ...
    def operator_lifts(self, node: str) -> None: ...
    def start_work(self, node: str) -> str: ...
    def end_work(self) -> None: ...
    def go_dark(self) -> None: ...
    def come_back(self) -> None: ...


class LocalWorld:
    def __init__(self, place: Path) -> None:
        self.path = place / "holds.json"
        self.jobs: dict[str, tuple[str, ...]] = {f"node{n}": () for n in range(1, 6)}  # all of them have reported
        self.scheduler = LocalScheduler(self.path, ManualClock(), lambda _: self.jobs)

    def _holds(self) -> dict[str, LocalHold]:
        return msgspec.json.decode(self.path.read_bytes(), type=LocalHolds).holds if self.path.exists() else {}

    def _write(self, holds: dict[str, LocalHold]) -> None:
        self.path.write_bytes(msgspec.json.encode(LocalHolds(1, holds)))

    def operator_holds(self, node: str, reason: str) -> None:
        self._write({**self._holds(), node: LocalHold(reason)})

    def operator_lifts(self, node: str) -> None:
        self._write({name: hold for name, hold in self._holds().items() if name != node})

    def start_work(self, node: str) -> str:
        self.jobs[node] = ("7",)
        return "7"

    def end_work(self) -> None:
        self.jobs = dict.fromkeys(self.jobs, ())

    def go_dark(self) -> None:
        self.path.write_text('{"version": 1, "holds": {"node1": {"rea')

    def come_back(self) -> None:
        self.path.unlink()


class SlurmWorld:
    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self.scheduler = SlurmScheduler(SlurmOptions(conf=str(cluster.conf), deadline_s=3.0))

    def operator_holds(self, node: str, reason: str) -> None:
        self.cluster.command("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def operator_lifts(self, node: str) -> None:
        self.cluster.command("scontrol", "update", f"nodename={node}", "state=resume")

    def start_work(self, node: str) -> str:
        job = self.cluster.command(
            "sbatch", "--parsable", f"--nodelist={node}", "--output=/dev/null", "--wrap=sleep 600"
        )
        wait_until_ready(lambda: self.cluster.node_states().get(node, "").startswith("alloc"), 90, f"work on {node}")
        return job.strip()

    def end_work(self) -> None:
        self.cluster.command("scancel", "--user=root", "--signal=KILL", "--full")
        self.cluster.command("scancel", "--user=root")
        wait_until_ready(lambda: not self.cluster.command("squeue", "-h").strip(), 90, "the queue to empty")

    def go_dark(self) -> None:
        self.cluster.stop_controller()

    def come_back(self) -> None:
        self.cluster.start_controller()
        wait_until_ready(self._all_known, 60, "slurmctld to know its nodes again")

    def _all_known(self) -> bool:
        states = self.cluster.node_states()
        return len(states) == len(self.cluster.shape.nodes) and not any("unk" in state for state in states.values())

    def clean(self) -> None:
        self.end_work()
        wait_until_ready(self._all_known, 60, "slurmctld to know its nodes")
        wait_until_ready(self._all_idle, 90, lambda: f"idle nodes; instead:\n{self._told()}")

    def _told(self) -> str:
        """What Slurm says of its nodes, its reservations and its last minutes."""
        asked = [
            self.cluster.command("scontrol", "show", what, "--oneliner", check=False)
            for what in ("nodes", "res", "jobs")
        ]
        log = self.cluster.directory / "log" / "slurmctld.log"
        return "\n".join([*asked, *log.read_text(errors="replace").splitlines()[-60:]])

    def _all_idle(self) -> bool:
        """Lifts what stands in the way: a slurmctld that was just started may find a node down only now, and one that was killed has reservations again that were deleted a moment before."""
        for words in self.cluster.command("scontrol", "show", "res", "--oneliner", check=False).split():
            name, _, value = words.partition("=")
            if name == "ReservationName":
                self.cluster.command("scontrol", "delete", f"reservationname={value}", check=False)
        states = self.cluster.node_states()
        for node, state in states.items():
            if state.startswith(("drain", "down")):
                self.operator_lifts(node)
        return len(states) == len(self.cluster.shape.nodes) and set(states.values()) == {"idle"}


class KubernetesWorld:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.scheduler = cluster.scheduler()
        self.scheduler.observe(NODES)

    def operator_holds(self, node: str, reason: str) -> None:
        self.cluster.cordon(node, reason)

    def operator_lifts(self, node: str) -> None:
        self.cluster.uncordon(node)

    def start_work(self, node: str) -> str:
        self.cluster.pod(node, maker=self.cluster.made("jobs", "train"))
        wait_until_ready(lambda: self.scheduler.observe([node])[node].jobs != (), 90, f"work on {node}")
        return "Job/research/train"

    def end_work(self) -> None:
        for namespace, name in list(self.cluster.store.things["pods"]):
            self.cluster.store.delete("pods", namespace, name)

    def go_dark(self) -> None:
        self.cluster.server.dark.set()
        wait_until_ready(lambda: self._answers() == {None}, 90, "the watches to be stale")

    def come_back(self) -> None:
        self.cluster.server.dark.clear()
        wait_until_ready(lambda: None not in self._answers(), 90, "the watches to be current")

    def _answers(self) -> set[bool | None]:
        return {hold.schedulable for hold in self.scheduler.observe(NODES).values()}


@pytest.fixture(params=["local", "kubernetes", pytest.param("slurm", marks=pytest.mark.slurm)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "local":
        yield LocalWorld(tmp_path)
        return
    if request.param == "kubernetes":
        with running(tmp_path) as cluster:
            if (
                cluster.server.policies.in_force
            ):  # a site may let the controller lift what others cordoned; without that it is refused
                allowing = chart.documents({"remediator": {"rights": {"evict": True, "uncordonOthers": True}}})
                cluster.server.policies = Policies(allowing.values())
            yield KubernetesWorld(cluster)
        return
    slurm = SlurmWorld(request.getfixturevalue("slurm_cluster"))
    slurm.clean()
    yield slurm
    slurm.clean()


def see(world: World, node: str = "node1") -> SchedulerNodeState:
    return world.scheduler.observe(NODES)[node]


def see_when(
    world: World, ready: Callable[[SchedulerNodeState], bool], what: str, node: str = "node1"
) -> SchedulerNodeState:
    wait_until_ready(lambda: ready(see(world, node)), 90, what)
    return see(world, node)


def test_a_free_node_may_be_used_and_belongs_to_nobody(world: World) -> None:
    assert world.scheduler.observe(NODES) == {node: SchedulerNodeState(node, schedulable=True) for node in NODES}


def test_our_drain_is_recognised_with_its_whole_reason(world: World) -> None:
    assert world.scheduler.cordon("node1", OURS).result is ActionResult.DONE
    hold = see(world)
    assert (hold.schedulable, hold.drained, hold.owner) == (False, True, HoldOwner.US)
    assert hold.reason.startswith("gpu-healthd: inc-1f3a XID 79 on GPU 3 (0000:3b:00.0)")
    assert see(world, "node2").schedulable is True


def test_draining_twice_changes_nothing(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    before = see(world)
    assert world.scheduler.cordon("node1", "gpu-healthd: inc-2 another").result is ActionResult.ALREADY
    assert see(world) == before


def test_what_we_placed_we_lift(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    assert world.scheduler.resume("node1").result is ActionResult.DONE
    hold = see_when(world, lambda hold: hold.schedulable is True, "node1 to be free again")
    assert (hold.owner, hold.reason) == (HoldOwner.NOBODY, "")


def test_asking_nobody_to_leave_is_already_done(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    assert see(world).evictable is False
    assert world.scheduler.evict("node1").result is ActionResult.ALREADY
    assert see(world).owner is HoldOwner.US


def test_lifting_nothing_is_already_done(world: World) -> None:
    assert world.scheduler.resume("node1").result is ActionResult.ALREADY


@pytest.mark.parametrize(
    "reason", ["fan replacement", "see gpu-healthd: inc-1", 'Kim\'s "test" = mine', "Größe prüfen"]
)
def test_an_operators_drain_wins_and_stays_as_it_is(world: World, reason: str) -> None:
    world.operator_holds("node1", reason)
    refused = world.scheduler.cordon("node1", OURS)
    assert refused.result is ActionResult.REFUSED
    assert reason in refused.detail
    assert world.scheduler.resume("node1").result is ActionResult.REFUSED
    hold = see(world)
    assert (hold.schedulable, hold.owner, hold.reason) == (False, HoldOwner.OPERATOR, reason)


def test_an_operator_who_takes_our_drain_over_owns_it(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    world.operator_holds("node1", "mine now")
    assert world.scheduler.resume("node1").result is ActionResult.REFUSED
    assert see(world).owner is HoldOwner.OPERATOR


def test_an_operator_may_lift_our_drain(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    world.operator_lifts("node1")
    see_when(world, lambda hold: hold.schedulable is True, "node1 to be free again")
    assert world.scheduler.resume("node1").result is ActionResult.ALREADY


def test_a_node_with_work_is_drained_only_when_the_work_has_left(world: World) -> None:
    job = world.start_work("node1")
    assert world.scheduler.cordon("node1", OURS).result is ActionResult.DONE
    hold = see(world)
    assert (hold.schedulable, hold.drained, hold.jobs) == (False, False, (job,))
    world.end_work()
    assert see_when(world, lambda hold: hold.drained, "node1 to be drained").jobs == ()


def test_a_scheduler_that_cannot_be_asked_says_so_and_recovers(world: World) -> None:
    world.scheduler.cordon("node1", OURS)
    world.go_dark()
    try:
        for hold in world.scheduler.observe(NODES).values():
            assert hold.schedulable is None
            assert hold.reason
        failed = [
            world.scheduler.cordon("node2", OURS),
            world.scheduler.resume("node1"),
            world.scheduler.cordon_for("node2", THEIRS),
            world.scheduler.uncordon_for("node1", OURS),
        ]
    finally:
        world.come_back()
    assert [outcome.result for outcome in failed] == [ActionResult.FAILED] * 4
    assert all(outcome.detail for outcome in failed)
    assert see_when(world, lambda hold: hold.schedulable is not None, "an answer", "node2").owner is HoldOwner.NOBODY


THEIRS = "by kim: Größe der Lüfter prüfen, rack r12"


@pytest.mark.parametrize("ours_before", [False, True])
def test_a_cordon_in_a_persons_name_is_theirs(world: World, *, ours_before: bool) -> None:
    if ours_before:
        world.scheduler.cordon("node1", OURS)
    assert world.scheduler.cordon_for("node1", THEIRS).result is ActionResult.DONE
    hold = see(world)
    assert (hold.schedulable, hold.owner, hold.reason) == (False, HoldOwner.OPERATOR, THEIRS)
    assert world.scheduler.cordon_for("node1", THEIRS).result is ActionResult.ALREADY
    assert world.scheduler.cordon("node1", OURS).result is ActionResult.REFUSED
    assert world.scheduler.resume("node1").result is ActionResult.REFUSED
    assert see(world, "node2").schedulable is True


@pytest.mark.parametrize("whose", ["ours", "theirs through us", "theirs past us"])
def test_a_person_lifts_whatever_hold_they_saw(world: World, whose: str) -> None:
    if whose == "ours":
        world.scheduler.cordon("node1", OURS)
    elif whose == "theirs through us":
        world.scheduler.cordon_for("node1", THEIRS)
    else:
        world.operator_holds("node1", "fan replacement")
    seen = see_when(world, lambda hold: hold.schedulable is False, "the hold to show").reason
    refused = world.scheduler.uncordon_for("node1", "what stood there before")
    assert refused.result is ActionResult.REFUSED
    assert seen in refused.detail
    assert see(world).reason == seen
    assert world.scheduler.uncordon_for("node1", seen).result is ActionResult.DONE
    hold = see_when(world, lambda hold: hold.schedulable is True, "node1 to be free again")
    assert (hold.owner, hold.reason) == (HoldOwner.NOBODY, "")
    assert world.scheduler.uncordon_for("node1", seen).result is ActionResult.ALREADY


def test_a_persons_reason_is_never_taken_for_ours(world: World) -> None:
    with pytest.raises(ValueError, match="must not begin with 'gpu-healthd:'"):
        world.scheduler.cordon_for("node1", "gpu-healthd: inc-1")
    assert see(world).schedulable is True


def test_a_reason_that_we_would_not_know_again_is_a_mistake(world: World) -> None:
    with pytest.raises(ValueError, match="must begin with 'gpu-healthd:'"):
        world.scheduler.cordon("node1", "XID 79")
    assert see(world).schedulable is True


def test_a_reason_is_kept_to_one_bounded_line(world: World) -> None:
    assert world.scheduler.cordon("node1", "gpu-healthd: inc-1\nXID 79\n" + "x" * 5000).result is ActionResult.DONE
    hold = see(world)
    assert hold.owner is HoldOwner.US
    assert hold.reason.startswith("gpu-healthd: inc-1 XID 79 xxx")
    assert len(hold.reason) <= 250


@pytest.mark.slurm
def test_slurm_without_the_node_says_how_to_name_it(slurm_cluster: SlurmCluster) -> None:
    scheduler = SlurmWorld(slurm_cluster).scheduler
    assert scheduler.observe(["elsewhere"])["elsewhere"].schedulable is None
    answers: list[ActionOutcome] = [scheduler.cordon("elsewhere", OURS), scheduler.resume("elsewhere")]
    assert not {answer.result for answer in answers} & {
        ActionResult.REFUSED,
        ActionResult.DONE,
    }  # nobody holds what is not there
    assert "has no node elsewhere; healthd's 'node' must be its name in slurm.conf" in answers[0].detail


def test_slurm_that_is_not_installed_is_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("remediator.schedulers.slurm.slurm_commands.SEARCH_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    scheduler = SlurmScheduler()
    assert "cannot run scontrol" in scheduler.observe(NODES)["node1"].reason
    assert scheduler.cordon("node1", OURS).result is ActionResult.FAILED


def test_local_does_not_call_a_silent_node_drained(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path)
    world.scheduler.cordon("node1", OURS)
    del world.jobs["node1"]
    assert see(world).drained is False

"""What the day's jobs go on from: the model's state, its copies in the nodes' memory, and a loss that no number of ranks changes."""

from __future__ import annotations

import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from bench.day.cluster import Cluster, work_for
from bench.day.memory_copies import NodeMemory
from bench.day.trainer import Rank, Training
from bench.ranks.collective import Collective
from bench.ranks.linear_model import LinearModel
from healthctl.process_supervision.port_allocation import find_free_ports
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
from healthd.trainer.checkpoint import Checkpoints
from healthd.trainer.checkpoint_storage.checkpoint_files import FileWriter

PATIENCE_S = 30.0


def make_step(model: LinearModel, world: int) -> str:
    """One step on so many ranks, whose parts come in from the last to the first; its loss."""
    parts = [model.gradient(rank, world) for rank in reversed(range(world))]
    return model.learn([sum(numbers) for numbers in zip(*parts, strict=True)]).hex()


def trained(steps: int) -> LinearModel:
    """A model after so many steps."""
    model = LinearModel(4)
    for _ in range(steps):
        make_step(model, 4)
    return model


def test_a_step_has_the_same_loss_bit_for_bit_on_any_number_of_ranks() -> None:
    whole, changing = LinearModel(14), LinearModel(14)

    for world in (14, 13, 10, 11, 14, 1, 7):
        assert make_step(whole, 14) == make_step(changing, world)
    assert whole.to_bytes() == changing.to_bytes()


def test_a_loss_depends_on_all_steps_before_however_many() -> None:
    model = LinearModel(1)
    for _ in range(800):
        behind = model.weights
        make_step(model, 1)
    other = LinearModel(1)
    other.step, other.weights = model.step, behind

    assert make_step(model, 1) != make_step(other, 1)


def test_a_node_holds_the_newest_step_of_each_job_until_it_is_powered_off(tmp_path: Path) -> None:
    memory, model = NodeMemory(tmp_path), trained(3)
    for step in (3, 4):
        memory.copies("n1", "large").save(model, 0, 4, (1, 0))
        assert memory.newest_steps({"n1", "n2"}) == {"large": step}
        make_step(model, 4)
    assert len(list((tmp_path / "n1" / "large").iterdir())) == 1
    found = LinearModel(4)
    assert memory.copies("n1", "large").load(found)
    assert found.to_bytes() == trained(4).to_bytes()

    memory.empty("n1")

    assert not memory.copies("n1", "large").load(LinearModel(4))
    assert memory.newest_steps({"n1"}) == {}


def test_a_copy_that_was_changed_is_passed_over(tmp_path: Path) -> None:
    copies = NodeMemory(tmp_path).copies("n1", "large")
    copies.save(trained(5), 0, 4, (1, 0))
    [copy] = (tmp_path / "n1" / "large").iterdir()
    copy.write_bytes(trained(6).to_bytes())

    assert not copies.load(LinearModel(4))


def test_a_machine_without_power_has_an_empty_memory(tmp_path: Path) -> None:
    with SupervisedPrograms(tmp_path / "log") as programs:
        cluster = Cluster(tmp_path, programs, 2, with_system=True)
        cluster.memory = NodeMemory(tmp_path / "memory")
        for node, device in cluster.devices.items():
            device.make(node, 1)
            cluster.memory.copies(node, "large").save(trained(1), 0, 2, (1, 0))

        cluster.power_off("n01")

        assert cluster.memory.newest_steps({"n01"}) == {}
        assert cluster.memory.newest_steps({"n02"}) == {"large": 1}


def test_a_machine_without_power_does_not_report_that_its_job_has_ended(tmp_path: Path) -> None:
    """The batch script's daemon would: it has no node in its environment, and its children have."""
    with SupervisedPrograms(tmp_path / "log") as programs:
        cluster = Cluster(tmp_path, programs, 2, with_system=True)
        for device in cluster.devices.values():
            device.make("n", 1)

        def run_batch_script(node: str) -> subprocess.Popen[str]:
            script = f"SLURM_CONF={cluster.slurm.conf} SLURMD_NODENAME={node} sh -c 'echo up; read line'; true"
            argv = ["sh", "-c", script, "slurmstepd: [1.batch]"]
            daemon = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert daemon.stdout is not None
            assert daemon.stdout.readline() == "up\n"
            return daemon

        with run_batch_script("n01") as lost, run_batch_script("n02") as other:
            cluster.power_off("n01")
            lost.communicate(timeout=PATIENCE_S)
            other.communicate("go on\n", timeout=PATIENCE_S)
        assert (lost.returncode, other.returncode) == (-signal.SIGKILL, 0)


class Start:
    """Two ranks of a job that starts again. `held`: which step the memory of their nodes holds, by rank."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch, held: dict[int, int], disk: int = 0) -> None:
        self.memory = NodeMemory(place / "memory")
        for rank, step in held.items():
            self.memory.copies(f"n{rank}", "large").save(trained(step), rank, 2, (1, 0))
        if disk:
            checkpoints, model = Checkpoints(place / "checkpoints" / "large", keep=2), trained(disk)
            writer = FileWriter(checkpoints.open(disk))
            with writer.create("model.json") as file:
                file.write(f'{{"step": {disk}, "weights": {model.weights}}}'.encode())
            checkpoints.complete(disk, 2, writer.entries)
        self.ranks = [self._make(place, monkeypatch, rank) for rank in range(2)]

    def _make(self, place: Path, monkeypatch: pytest.MonkeyPatch, rank: int) -> Training:
        env = {"SLURMD_NODENAME": f"n{rank}", "HEALTHD_ATTEMPT": "2", "SLURM_PROCID": str(rank), "SLURM_NTASKS": "2"}
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        me = Rank(place, "large", 4)
        return Training(me, guarded=True, memory=self.memory.copies(me.node, "large"))

    def begin(self) -> set[tuple[int, str, bytes]]:
        """From which step the ranks go on, where that came from, and what it is."""
        address = ("127.0.0.1", find_free_ports(1)[0])

        def enter(number: int) -> tuple[int, str, bytes]:
            training = self.ranks[number]
            with closing(Collective(address, number, 2, PATIENCE_S)) as training._together:
                training._take_newest()
            return training._model.step, training._source, training._model.to_bytes()

        with ThreadPoolExecutor(2) as ranks:
            return set(ranks.map(enter, range(2)))


@pytest.mark.parametrize(
    ("held", "disk", "step", "source"),
    [
        ({}, 0, 0, "the beginning"),
        ({}, 5, 5, "a checkpoint"),
        ({1: 7}, 5, 7, "the nodes' memory"),
        ({0: 7}, 5, 7, "the nodes' memory"),
        ({0: 7, 1: 8}, 5, 8, "the nodes' memory"),
        ({0: 3}, 5, 5, "a checkpoint"),
    ],
)
def test_a_restarted_job_goes_on_from_the_newest_step_that_its_nodes_or_the_disk_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: dict[int, int], disk: int, step: int, source: str
) -> None:
    assert Start(tmp_path, monkeypatch, held, disk).begin() == {(step, source, trained(step).to_bytes())}


def test_a_newcomer_does_not_bring_what_its_node_held_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(tmp_path, monkeypatch, {1: 9})
    start.ranks[0]._model.take_bytes(trained(4).to_bytes())
    start.ranks[1]._rank.generation = start.ranks[1]._first_generation = 1

    assert start.begin() == {(4, "the ranks' memory", trained(4).to_bytes())}


@pytest.mark.parametrize("nodes", [8, 16, 24, 32])
def test_the_jobs_with_their_spares_leave_nodes_free_and_may_shrink(nodes: int) -> None:
    works = work_for(nodes)

    assert sum(work.nodes + work.spares for work in works) <= nodes
    assert all(1 <= work.least <= work.nodes for work in works)
    assert sum(work.nodes + work.spares for work in work_for(32)) < 30

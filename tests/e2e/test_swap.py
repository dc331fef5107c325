"""`healthctl launch --swap`: a rank is lost in every way that there is, and the others go on in their processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainer_job import DEADLINE_S, References, TrainingJob

from healthd.trainer.beacons.beacon import read_all_pages
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.page_reader import BeaconView
from healthd.trainer.exit_codes import ExitCode

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
STEPS, STRIKE = 30, 8


class SwapJob(TrainingJob):
    """A job whose nodes have each a beacon directory of their own."""

    def __init__(self, place: Path, nodes: tuple[str, ...]) -> None:
        super().__init__(place, nodes=nodes, beacons=False)
        (place / "beacons").mkdir(mode=0o755)
        for node in nodes:
            prepare_directory(str(place / "beacons" / node))
        self.beacons = place / "beacons" / "{node}"

    def views(self, attempt: int = 1) -> list[BeaconView]:
        """The living ranks' pages of an attempt, by rank."""
        pages = [view for node in self.nodes for view in read_all_pages(str(self.place / "beacons" / node))[0]]
        alive = [view for view in pages if view.identity.attempt == attempt and view.alive]
        return sorted(alive, key=lambda view: view.identity.rank)

    def ranks_with(self, node: str, *, step: int) -> list[BeaconView]:
        """Both ranks, once one of them is on `node` and they are at `step` or past it."""

        def there() -> list[BeaconView]:
            views = [view for view in self.views() if view.state.step >= step]
            return views if [view.identity.node for view in views] == ["n0", node] else []

        return self.until(there, f"a rank on {node} at step {step}")

    def swapped(self) -> list[int]:
        """The first step of each generation that followed a loss."""
        return [event["step"] for event in self.events("swapped")]  # type: ignore[misc]  # as the launcher writes it

    def replacement(self, number: int) -> str:
        """The node of the spare in the replacement of this number, from 1: whichever spare was ready first. Waits for it."""
        end = time.monotonic() + DEADLINE_S
        while len(found := self.events("rank_replaced")) < number:
            assert time.monotonic() < end, f"replacement {number}: not within {DEADLINE_S} s\n{self.log()}"
            time.sleep(0.01)
        return str(found[number - 1]["after"])


MakeJob = Callable[..., SwapJob]


@pytest.fixture
def make_job(tmp_path: Path) -> Iterator[MakeJob]:
    made = []

    def make(nodes: int = 2, spares: int = 1, per_node: int = 1, steps: int = STEPS) -> SwapJob:
        job = SwapJob(tmp_path, tuple(f"n{number}" for number in range(nodes + spares)))
        made.append(job)
        options = (f"--nodes={nodes}", f"--spares={spares}", f"--ranks-per-node={per_node}", "--swap")
        job.start(*options, steps=steps, every=1000, pace=0.05)
        return job

    yield make
    for job in made:
        job.close()


@pytest.fixture(scope="module")
def undisturbed(references: References) -> dict[int, str]:
    return references.losses(2, STEPS)


def assert_went_on(job: SwapJob, losses: dict[int, str], *, swaps: int = 1) -> None:
    """One attempt, all steps, each loss as in the undisturbed run, and no finished step trained twice."""
    assert job.finish() == 0, job.log()
    assert len(job.events("attempt_started")) == 1, job.log()
    assert len(job.events("rank_lost")) == len(job.swapped()) == swaps, job.log()
    assert job.losses() == losses
    assert [event["lost"] for event in job.events("swapped")] == [0] * swaps, "a finished step was trained twice"
    assert "traceback" not in job.log().lower(), job.log()


def test_killed_frozen_and_ejected_ranks_are_replaced_one_after_the_other(
    make_job: MakeJob, undisturbed: dict[int, str]
) -> None:
    job = make_job(spares=3)
    first = job.ranks(world=2, step=STRIKE)
    os.kill(first[1].identity.pid, signal.SIGKILL)
    second = job.replacement(1)
    frozen = job.ranks_with(second, step=STRIKE + 5)
    os.kill(frozen[1].identity.pid, signal.SIGSTOP)
    job.order(frozen, "abort", condemned=second)
    third = job.replacement(2)
    ejected = job.ranks_with(third, step=STRIKE + 10)
    job.order(ejected, condemned=third)
    fourth = job.replacement(3)
    last = job.ranks_with(fourth, step=STRIKE + 13)
    another = Path(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/job/{job.place.name}-another-run/n0")
    another.mkdir(parents=True)
    assert {views[0].identity.pid for views in (first, frozen, ejected, last)} == {first[0].identity.pid}

    assert_went_on(job, undisturbed, swaps=3)
    assert {second, third, fourth} == {"n2", "n3", "n4"}
    run = (job.checkpoints / "run-id").read_text()
    another.rmdir()  # what another run of a job of this name holds is still there
    another.parent.rmdir()
    left = Path(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/job/{run}")
    assert sorted(path.name for path in left.iterdir()) == sorted(["n1", second, third])  # those that were lost


def test_all_ranks_of_the_node_with_rank_0_are_replaced_together(make_job: MakeJob) -> None:
    steps = STRIKE + 6
    job = make_job(nodes=2, spares=1, per_node=2, steps=steps)
    for view in reversed(job.ranks(world=4, step=STRIKE)):  # rank 0 last: a generation waits for its store by then
        if view.identity.node == "n0":
            os.kill(view.identity.pid, signal.SIGKILL)
    assert job.finish() == 0, job.log()
    assert {(event["rank"], event["after"]) for event in job.events("rank_replaced")} == {(0, "n2"), (1, "n2")}
    assert len(job.events("attempt_started")) == 1
    assert set(job.losses()) == set(range(steps))


def test_a_second_failure_during_the_swap_takes_the_second_spare(
    make_job: MakeJob, undisturbed: dict[int, str]
) -> None:
    job = make_job(spares=2)
    views = job.ranks(world=2, step=STRIKE)
    os.kill(views[1].identity.pid, signal.SIGKILL)
    node = job.replacement(1)
    spare = next(pid for pid in children(job) if f"HEALTHD_NODE={node}".encode() in environment(pid))
    os.kill(spare, signal.SIGKILL)  # as it joins
    assert job.finish() == 0, job.log()
    assert {node, job.replacement(2)} == {"n2", "n3"}
    assert len(job.events("attempt_started")) == 1, job.log()
    assert job.losses() == undisturbed


def test_without_a_spare_left_the_job_starts_again_from_the_nodes_memory(
    make_job: MakeJob, undisturbed: dict[int, str]
) -> None:
    job = make_job()
    views = job.ranks(world=2, step=STRIKE)
    spare = next(pid for pid in children(job) if b"HEALTHD_NODE=n2" in environment(pid))
    os.kill(spare, signal.SIGKILL)
    os.kill(views[1].identity.pid, signal.SIGKILL)
    assert job.finish() == 0, job.log()
    assert len(job.events("attempt_started")) == 2
    assert job.events("swap_impossible")
    assert job.losses() == undisturbed


def test_a_rank_that_freezes_silently_is_replaced_without_an_order(tmp_path: Path, undisturbed: dict[int, str]) -> None:
    job = SwapJob(tmp_path, ("n0", "n1", "n2"))
    job.start("--nodes=2", "--spares=1", "--swap", "--frozen-seconds=3", steps=STEPS, every=1000, pace=0.05)
    try:
        os.kill(job.ranks(world=2, step=STRIKE)[1].identity.pid, signal.SIGSTOP)
        assert_went_on(job, undisturbed)
    finally:
        job.close()
    assert "does not answer" in str(job.events("rank_lost")[0]["text"])


def test_two_neighbours_lost_at_once_go_on_from_the_checkpoint_on_disk(tmp_path: Path, references: References) -> None:
    job = SwapJob(tmp_path, tuple(f"n{number}" for number in range(5)))
    job.start("--nodes=3", "--spares=2", "--swap", steps=20, every=4, pace=0.05)
    try:
        for view in job.ranks(world=3, step=STRIKE + 2)[1:]:  # rank 1's copies are on these two nodes alone
            os.kill(view.identity.pid, signal.SIGKILL)
        assert job.finish() == 0, job.log()
    finally:
        job.close()
    assert len(job.events("attempt_started")) == 1, job.log()
    assert "a checkpoint" in {event["source"] for event in job.events("swapped")}, job.events("swapped")
    assert job.losses() == references.losses(3, 20)


def children(job: SwapJob) -> list[int]:
    """The launcher's processes."""
    assert job._launcher is not None
    text = Path(f"/proc/{job._launcher.pid}/task/{job._launcher.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def environment(pid: int) -> bytes:
    """Of a process; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_told_to_stop_the_ranks_save_at_one_step_and_leave_in_good_order(
    make_job: MakeJob, undisturbed: dict[int, str]
) -> None:
    job = make_job()
    job.ranks(world=2, step=STRIKE)
    job.terminate()
    assert job.finish() == 128 + signal.SIGTERM, job.log()
    assert job.codes(1) == [ExitCode.RELAUNCH, ExitCode.RELAUNCH], job.log()
    assert not job.events("rank_lost"), job.log()
    stopped = max(job.steps())
    job.start("--nodes=2", "--spares=1", "--swap", steps=STEPS, every=1000)
    assert job.finish() == 0, job.log()
    assert job.steps() == list(range(STEPS)), f"stopped after step {stopped}"
    assert job.losses() == undisturbed


SCRIPT = """
import os, sys, time
from pathlib import Path
if os.environ.get("HEALTHD_SPARE"):
    while not Path("go").exists():
        time.sleep(0.01)
from healthd.trainer.adapters.pytorch_generations import run_guarded_job
def train(job):
    job.shared.store.set(f"here-{job.rank}", "")
    job.shared.store.wait(["here-0", "here-1"])
    if os.environ["EXIT"] == "in train":
        sys.exit(0)
run_guarded_job(train)
if os.environ.get("RANK") == "0":
    Path("go").touch()
if os.environ["EXIT"] == "after train" and not os.environ.get("HEALTHD_SPARE"):
    sys.exit(7)
"""


@pytest.mark.parametrize(("where", "code"), [("in train", 0), ("after train", 7)])
def test_how_the_program_ends_counts_as_it_does_without_spares(tmp_path: Path, where: str, code: int) -> None:
    (tmp_path / "job.py").write_text(SCRIPT + ('Path("go").touch()\n' if where != "in train" else ""))
    options = ["--backend=local", "--node-names=n0,n1,n2", "--nodes=2", "--spares=1", "--swap", "--gate=off"]
    environ = {**os.environ, "EXIT": where, "HEALTHD_BEACON_DIR": str(tmp_path), "HEALTHD_JOB": "ends"}
    if where == "in train":
        (tmp_path / "go").touch()
    argv = [sys.executable, "-m", "healthctl.main", "launch", *options, "--", sys.executable, "job.py"]
    done = subprocess.run(
        argv, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == code, done.stderr
    assert "is gone" not in done.stderr

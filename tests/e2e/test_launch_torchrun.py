"""`healthctl launch --per-node` around real torchrun: how its ranks ended is read from their pages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from adapter_job import SCRIPTS
from trainer_job import TrainingJob

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
STEPS = 16


class TorchrunJob(TrainingJob):
    """A DDP script that torchrun starts, two ranks on each pretend node."""

    def start(self, *options: str, steps: int = STEPS, every: int = 1000, pace: float = 0.0) -> TorchrunJob:
        """Launch it (again)."""
        torchrun = [sys.executable, "-m", "torch.distributed.run", str(SCRIPTS / "plain.py"), "ddp"]
        torchrun += [f"--steps={steps}", f"--every={every}", f"--step-seconds={pace}"]
        torchrun += [f"--checkpoints={self.checkpoints}", f"--losses={self._losses}"]
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--per-node", "--gate=off"]
        argv += ["--ranks-per-node=2", f"--node-names={','.join(self.nodes)}", f"--events={self._events}", *options]
        environ = {**os.environ, "HEALTHD_BEACON_DIR": str(self.beacons), "HEALTHD_JOB": "job", "OMP_NUM_THREADS": "1"}
        with (self.place / "log").open("ab") as log:
            self._launcher = subprocess.Popen([*argv, "--", *torchrun], env=environ, stdout=log, stderr=log)
        return self


@pytest.fixture
def job(tmp_path: Path) -> Iterator[TorchrunJob]:
    made = TorchrunJob(tmp_path, nodes=("n0", "n1", "n2"))
    yield made
    made.close()


def test_an_order_to_ranks_under_torchrun_brings_the_job_back_without_the_condemned_node(job: TorchrunJob) -> None:
    job.start("--spares=1", pace=0.05)
    job.order(job.ranks(world=4, step=3))

    assert job.finish() == 0, job.log()

    assert [event["nodes"] for event in job.events("attempt_started")] == [["n0", "n1"], ["n0", "n2"]]
    assert job.events("attempt_ended")[0]["condemned"] == ["n1"]
    assert job.codes(1) == [91, 91, 90, 90]
    assert job.steps() == list(range(STEPS))  # none lost, none trained twice


def test_told_to_stop_torchruns_ranks_save_and_leave(job: TorchrunJob) -> None:
    job.start("--nodes=1", steps=10_000, pace=0.05)
    job.ranks(world=2, step=3)
    job.terminate()

    assert job.finish() == 143, job.log()

    assert job.codes(1) == [91, 91]
    assert [path.name for path in job.checkpoints.glob("step-*")] == [f"step-{job.steps()[-1]:09d}"]

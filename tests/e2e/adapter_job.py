"""A training job of an adapter's test: one of the scripts in `training/` under `healthctl launch`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from trainer_job import STEPS, TrainingJob

SCRIPTS = Path(__file__).parent / "training"


def hurry(job: TrainingJob) -> None:
    """Nothing is waited for any more: the rest of the steps take no longer than they must."""
    (job.place / "hurry").touch()


class AdapterJob(TrainingJob):
    """As `TrainingJob`, with a script of ours."""

    def __init__(self, place: Path, script: str, *words: str, nodes: tuple[str, ...] = ("n0", "n1")) -> None:
        place.mkdir(parents=True, exist_ok=True)
        super().__init__(place, nodes=nodes)
        self._script = [str(SCRIPTS / script), *words]

    def start(self, *options: str, steps: int = STEPS, every: int = 1000, pace: float = 0.0) -> AdapterJob:
        """Launch it (again)."""
        training = [sys.executable, *self._script, f"--steps={steps}", f"--every={every}", f"--step-seconds={pace}"]
        training += [f"--checkpoints={self.checkpoints}", f"--losses={self._losses}"]
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local"]
        argv += [f"--node-names={','.join(self.nodes)}", f"--events={self._events}", "--gate=off", *options]
        environ = {**os.environ, "HEALTHD_BEACON_DIR": str(self.beacons), "HEALTHD_JOB": "job"}
        with (self.place / "log").open("ab") as log:
            self._launcher = subprocess.Popen([*argv, "--", *training], env=environ, stdout=log, stderr=log)
        return self

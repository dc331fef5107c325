"""The training job, as its user starts it: through sbatch, or on this machine with a queue of our own making.

Both run the same command, `healthctl launch`, and both start it again when it asks to be queued again.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Protocol

import msgspec

from healthctl.demo.cluster import BIN, DemoCluster
from healthctl.demo.training import COMMAND
from healthctl.supervised.programs import ProgramError

REQUEUE_EXIT = 75  # what `healthctl launch` answers when too few nodes are left
ALLOCATION = 5
EVERY_STEP = {"HEALTHD_COPY_STEPS": "1"}  # no finished step is lost
LEAVE_S = 15.0  # a rank that saves on a busy machine is slow, and not stuck


class Training(msgspec.Struct, frozen=True):
    """What is trained: so many steps at this pace, a checkpoint each `every` steps, on so many nodes."""

    steps: int = 160
    every: int = 20
    pace_s: float = 0.1
    nodes: int = 3


class Job(Protocol):
    """A job in a queue."""

    def submit(self) -> str:
        """Queue it; returns its id."""
        ...

    def look_after(self) -> None:
        """Whatever the queue does by itself; called again and again."""
        ...

    def exit_code(self) -> int | None:
        """How it ended; None while it has not."""
        ...


def launch_command(cluster: DemoCluster, training: Training) -> list[str]:
    """`healthctl launch` and the trainer, as a user would write it in a batch script."""
    return [
        str(BIN / "healthctl"),
        "launch",
        f"--nodes={training.nodes}",
        f"--spares={ALLOCATION - training.nodes}",
        "--swap",
        f"--leave-seconds={LEAVE_S:g}",
        f"--events={cluster.workdir / 'launcher.jsonl'}",
    ]


def train_command(training: Training, place: Path, pace_s: float) -> list[str]:
    """The trainer, its files below `place`; a pace makes its steps as long as those of a model worth the name."""
    return [
        *COMMAND,
        f"--steps={training.steps}",
        f"--every={training.every}",
        f"--step-seconds={pace_s}",
        f"--checkpoints={place / 'checkpoints'}",
        f"--losses={place / 'losses.jsonl'}",
    ]


def start_reference(cluster: DemoCluster, training: Training) -> None:
    """The same training, never interrupted, unguarded and as fast as it goes, beside everything else."""
    place = cluster.workdir / "reference"
    place.mkdir()
    names = ",".join(f"reference{number}" for number in range(training.nodes))
    argv = ["nice", "-n", "10", str(BIN / "healthctl"), "launch", "--backend=local", f"--node-names={names}"]
    argv += ["--gate=off", "--", *train_command(training, place, pace_s=0.0)]
    env = cluster.env | {"HEALTHD_JOB": "reference", "HEALTHD_BEACON_DIR": str(place / "no-healthd-here")}
    cluster.programs.start("reference", argv, env=env)


class SlurmJob:
    """An sbatch job on three to five nodes."""

    def __init__(self, cluster: DemoCluster, training: Training) -> None:
        if cluster.slurm is None:
            raise ValueError("the cluster has no Slurm")
        self._cluster = cluster
        self._slurm = cluster.slurm
        self._training = training
        self._id = ""

    def submit(self) -> str:
        """Write the batch script and queue it."""
        script = self._cluster.workdir / "job.sh"
        train = train_command(self._training, self._cluster.workdir, self._training.pace_s)
        command = [*launch_command(self._cluster, self._training), "--", *train]
        exports = "".join(f"export {name}={value}\n" for name, value in EVERY_STEP.items())
        script.write_text(f"#!/bin/sh\n{exports}exec {shlex.join(command)}\n")
        argv = ["sbatch", "--parsable", "--requeue", "--no-kill", "--job-name=train-gpt", "--open-mode=append"]
        argv += [f"--nodes={self._training.nodes}-{ALLOCATION}", f"--output={self._cluster.programs.log('job')}"]
        argv += [f"--chdir={self._cluster.workdir}", "--export=ALL", str(script)]
        self._id = self._cluster.run(*argv).partition(";")[0]
        return self._id

    def look_after(self) -> None:
        """Slurm does everything itself."""

    def exit_code(self) -> int | None:
        """From Slurm's memory of the job."""
        shown = self._slurm.command("scontrol", "show", "job", self._id, "--oneliner", check=False)
        words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        if words.get("JobState") not in {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}:
            return None
        code, _, number = words.get("ExitCode", "1:0").partition(":")
        return int(code) or (128 + int(number) if int(number) else 0)


class LocalJob:
    """The launcher on this machine with pretend nodes. The queue: all free nodes, and again when it asks for it."""

    def __init__(self, cluster: DemoCluster, training: Training) -> None:
        self._cluster = cluster
        self._training = training

    def submit(self) -> str:
        """Start it."""
        self._start()
        return "demo"

    def look_after(self) -> None:
        """Start it again if it asked to be queued again."""
        if self._cluster.programs.exit_code("job") == REQUEUE_EXIT:
            self._start()

    def exit_code(self) -> int | None:
        """Its exit code, unless it is to be queued again."""
        code = self._cluster.programs.exit_code("job")
        return None if code == REQUEUE_EXIT else code

    def _start(self) -> None:
        free = [node for node, hold in self._cluster.scheduler.observe(self._cluster.nodes).items() if hold.schedulable]
        if len(free) < self._training.nodes:
            raise ProgramError(f"too few free nodes to queue the job again: {', '.join(free) or 'none'}")
        names = ",".join(free[:ALLOCATION])
        argv = [*launch_command(self._cluster, self._training), "--backend=local", f"--node-names={names}", "--"]
        argv += train_command(self._training, self._cluster.workdir, self._training.pace_s)
        env = self._cluster.env | {"HEALTHD_JOB": "demo"} | EVERY_STEP
        self._cluster.programs.start("job", argv, env=env)

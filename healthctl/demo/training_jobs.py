"""The demo's training job, as a user would start it: with sbatch, or on this machine with a minimal queue.

Both run the same command, `healthctl launch`, and both restart it when it requests a requeue.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Protocol

import msgspec

from healthctl.demo.demo_cluster import BIN, DemoCluster
from healthctl.demo.training import COMMAND
from healthctl.process_supervision.supervised_programs import ProgramError

REQUEUE_EXIT = 75  # exit code of `healthctl launch` if too few nodes are left
ALLOCATION = 5
EVERY_STEP = {"HEALTHD_COPY_STEPS": "1"}  # no finished step is lost
LEAVE_S = 15.0  # a rank that saves on a busy machine is slow, and not stuck


class Training(msgspec.Struct, frozen=True):
    """The training: number of steps, their minimum duration, steps between checkpoints, number of nodes."""

    steps: int = 160
    every: int = 20
    pace_s: float = 0.1
    nodes: int = 3


class Job(Protocol):
    """A job in a queue."""

    def submit(self) -> str:
        """Queue it; returns its id."""

    def look_after(self) -> None:
        """Do the queue's work; called repeatedly."""

    def exit_code(self) -> int | None:
        """The exit code; None while it has not ended."""


def build_launch_command(cluster: DemoCluster, training: Training) -> list[str]:
    """`healthctl launch` and the trainer, as a user would write them in a batch script."""
    return [
        str(BIN / "healthctl"),
        "launch",
        f"--nodes={training.nodes}",
        f"--spares={ALLOCATION - training.nodes}",
        "--swap",
        f"--leave-seconds={LEAVE_S:g}",
        f"--events={cluster.workdir / 'launcher.jsonl'}",
    ]


def build_train_command(training: Training, place: Path, pace_s: float) -> list[str]:
    """The trainer, with its files below `place`; a minimum step time makes its steps as long as those of a real model."""
    return [
        *COMMAND,
        f"--steps={training.steps}",
        f"--every={training.every}",
        f"--step-seconds={pace_s}",
        f"--checkpoints={place / 'checkpoints'}",
        f"--losses={place / 'losses.jsonl'}",
    ]


def start_reference(cluster: DemoCluster, training: Training) -> None:
    """Start the same training without interruption, at full speed, as a reference."""
    place = cluster.workdir / "reference"
    place.mkdir()
    names = ",".join(f"reference{number}" for number in range(training.nodes))
    argv = ["nice", "-n", "10", str(BIN / "healthctl"), "launch", "--backend=local", f"--node-names={names}"]
    argv += ["--gate=off", "--", *build_train_command(training, place, pace_s=0.0)]
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
        train = build_train_command(self._training, self._cluster.workdir, self._training.pace_s)
        command = [*build_launch_command(self._cluster, self._training), "--", *train]
        exports = "".join(f"export {name}={value}\n" for name, value in EVERY_STEP.items())
        script.write_text(f"#!/bin/sh\n{exports}exec {shlex.join(command)}\n")
        argv = ["sbatch", "--parsable", "--requeue", "--no-kill", "--job-name=train-gpt", "--open-mode=append"]
        argv += [f"--nodes={self._training.nodes}-{ALLOCATION}", f"--output={self._cluster.programs.log('job')}"]
        argv += [f"--chdir={self._cluster.workdir}", "--export=ALL", str(script)]
        self._id = self._cluster.run(*argv).partition(";")[0]
        return self._id

    def look_after(self) -> None:
        """Nothing to do: Slurm manages the queue."""

    def exit_code(self) -> int | None:
        """The exit code from Slurm's job record."""
        shown = self._slurm.command("scontrol", "show", "job", self._id, "--oneliner", check=False)
        words = dict(word.split("=", 1) for word in shown.split() if "=" in word)
        if words.get("JobState") not in {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}:
            return None
        code, _, number = words.get("ExitCode", "1:0").partition(":")
        return int(code) or (128 + int(number) if int(number) else 0)


class LocalJob:
    """The launcher on this machine with simulated nodes; the queue restarts it on all free nodes when it requests that."""

    def __init__(self, cluster: DemoCluster, training: Training) -> None:
        self._cluster = cluster
        self._training = training

    def submit(self) -> str:
        """Start it."""
        self._start()
        return "demo"

    def look_after(self) -> None:
        """Restart it if it requested a requeue."""
        if self._cluster.programs.exit_code("job") == REQUEUE_EXIT:
            self._start()

    def exit_code(self) -> int | None:
        """Its exit code, unless it is to be requeued."""
        code = self._cluster.programs.exit_code("job")
        return None if code == REQUEUE_EXIT else code

    def _start(self) -> None:
        free = [node for node, hold in self._cluster.scheduler.observe(self._cluster.nodes).items() if hold.schedulable]
        if len(free) < self._training.nodes:
            raise ProgramError(f"too few free nodes to queue the job again: {', '.join(free) or 'none'}")
        names = ",".join(free[:ALLOCATION])
        argv = [*build_launch_command(self._cluster, self._training), "--backend=local", f"--node-names={names}", "--"]
        argv += build_train_command(self._training, self._cluster.workdir, self._training.pace_s)
        env = self._cluster.env | {"HEALTHD_JOB": "demo"} | EVERY_STEP
        self._cluster.programs.start("job", argv, env=env)

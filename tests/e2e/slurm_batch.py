"""An sbatch job of the tests' Slurm that runs `healthctl launch`."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import repeat
from pathlib import Path
from typing import Any

from healthctl.demo.slurm_cluster import SlurmCluster
from healthd.launcher.decisions.relaunch_policy import REQUEUE_EXIT
from healthd.trainer.rendezvous_client import MEMBER

DEADLINE_S = 90.0
ROOT = Path(__file__).parents[2]


class Batch:
    """One sbatch job that runs the launcher over some nodes."""

    def __init__(
        self, cluster: SlurmCluster, place: Path, nodes: int, options: str, rank_script: str, *, exec_launcher: bool
    ) -> None:
        self.cluster, self.place, self.events = cluster, place, place / "events"
        command = f"{sys.executable} -m healthctl.main launch --events {self.events} {options} -- sh -c {shlex.quote(rank_script)}"
        run = f"exec {command}" if exec_launcher else f"{command}\necho $? >> {place}/code"
        (place / "job.sh").write_text(f"#!/bin/sh\ncd {ROOT}\n{run}\n")
        argv = [
            "sbatch",
            "--parsable",
            f"--nodes={nodes}",
            "--no-kill",
            "--requeue",
            f"--output={place}/log",
            "--open-mode=append",
        ]
        self.id = cluster.command(*argv, str(place / "job.sh")).strip()

    def until(self, what: Callable[[], object], why: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < end, f"{why}: not within {DEADLINE_S} s\n{self.log()}"
            time.sleep(0.05)

    def code(self) -> int:
        """The exit code of the launcher that did not give its job back."""
        self.until(self._codes, "the launcher to end")
        return int(self._codes()[-1])

    def _codes(self) -> list[str]:
        """The whole words the job has written: the shell opens the file a moment before it writes.

        A launcher that has its job requeued may end before Slurm ends the script around it: that code is not the last.
        """
        code = self.place / "code"
        lines = code.read_text().splitlines(keepends=True) if code.exists() else []
        return [line.strip() for line in lines if line.endswith("\n") and line.strip() != str(REQUEUE_EXIT)]

    def log(self) -> str:
        log = self.place / "log"
        return log.read_text(errors="replace") if log.exists() else self.cluster.command("squeue", check=False)

    def all(self, kind: str) -> list[dict[str, Any]]:
        if not self.events.exists():
            return []
        return [event for line in self.events.read_text().splitlines() if (event := json.loads(line))["event"] == kind]


def find_task(job: Batch, number: int | None = None, *, node: str = "") -> int:
    """The process of a task of the newest step, by its number or its node: here all nodes are this machine.

    Another Slurm of this machine, of another test run, numbers its jobs alike: the folder tells them apart.
    """
    folder = f"HEALTHD_BEACON_DIR={job.place}/beacons".encode()
    task = f"SLURMD_NODENAME={node}" if node else f"{MEMBER}={number}"
    wanted = {f"SLURM_JOB_ID={job.id}".encode(), task.encode()}
    marks = (folder, f"{MEMBER}=".encode())  # the launcher has no number
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            variables = entry.read_bytes().split(b"\0")
            if wanted <= set(variables) and all(any(map(bytes.startswith, variables, repeat(mark))) for mark in marks):
                found.append(int(entry.parent.name))
    assert found, f"the task with {task} does not run\n{job.log()}"
    return min(found)


Submit = Callable[..., Batch]

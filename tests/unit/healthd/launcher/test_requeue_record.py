"""Slurm ends a launcher while it has its job requeued: the log and the events file still say why.

The launcher is a real process in an allocation of one node. Small programs stand for Slurm's commands, because the real
ones cannot be made to end the launcher at a given moment.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.healthd.launcher.launcher_process import DEADLINE_S, read_events, wait_until

SCONTROL = """
case "$1 $2" in
"show hostnames") echo n1 ;;
"-o show") {on_show}; echo "JobId=7 Partition=train NodeList=n1 NumNodes=1" ;;
"requeue 7") {on_requeue} ;;
"update jobid=7") {on_update} ;;
esac
"""
OTHERS = {
    "squeue": "echo n1",
    "sinfo": "printf 'n1|8|(null)|(null)\\nn2|8|(null)|(null)\\n'",
    "srun": """echo '{"node": "n1", "fitness": "unfit", "reason": "wrong products"}'""",
}
REASON = "no attempt possible here (1 node needed, 0 usable of 1; not n1)"
PLAN = f"healthctl launch: {REASON}: requesting Slurm to requeue the job, from now on without n1\n"
FILL_PIPE = "dd if=/dev/zero of=/proc/$PPID/fd/2 bs=4096 count=1000 oflag=nonblock 2>&-"  # the launcher's own log
OUTCOME = "healthctl launch: the job is queued again, from now on without n1\n"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts the launcher. The arguments are what Slurm does besides, as shell commands."""

    def run(*, on_show: str = ":", on_requeue: str = ":", on_update: str = ":") -> subprocess.Popen[str]:
        commands = tmp_path / "bin"
        commands.mkdir()
        scontrol = SCONTROL.format(on_show=on_show, on_requeue=on_requeue, on_update=on_update)
        for name, script in {"scontrol": scontrol, **OTHERS}.items():
            (commands / name).write_text(f"#!/bin/sh\n{script}\n")
            (commands / name).chmod(0o755)
        options = ["--backend", "slurm", "--gate", "off", "--preflight-command", "x", "--events", f"{tmp_path}/events"]
        return subprocess.Popen(
            [sys.executable, "-m", "healthctl.main", "launch", *options, "--", "true"],
            env={**os.environ, "PATH": f"{commands}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"},
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


def wait_for_event(path: Path, event: str) -> None:
    wait_until(lambda: path.exists() and f'"{event}"' in path.read_text(), f"no event {event}")


def test_a_launcher_that_is_killed_with_the_requeue_has_said_why(start: Start, tmp_path: Path) -> None:
    """So it ends where the batch script's shell obeys SIGTERM and Slurm kills what the script leaves behind."""
    launcher = start(on_show=FILL_PIPE, on_requeue="kill -KILL $PPID")
    wait_for_event(tmp_path / "events", "requeuing")

    said = launcher.communicate(timeout=DEADLINE_S)[1].replace("\0", "")

    assert launcher.returncode == -9
    assert said.endswith(PLAN)
    last = read_events(tmp_path / "events")[-1]
    assert (last["event"], last["without"], last["wait_seconds"]) == ("requeuing", ["n1"], 0)


def test_a_signal_that_comes_late_does_not_cut_off_what_was_said_last(start: Start, tmp_path: Path) -> None:
    """Slurm's SIGTERM comes while the last line waits for a reader: here the log is a pipe without room."""
    launcher = start(on_update=f"{FILL_PIPE}; exit 0")
    wait_for_event(tmp_path / "events", "requeued")

    launcher.terminate()

    said = launcher.communicate(timeout=DEADLINE_S)[1].replace("\0", "")
    assert said.endswith(PLAN + OUTCOME)


def test_what_is_to_be_done_and_what_was_done_are_two_lines(start: Start, tmp_path: Path) -> None:
    launcher = start()

    said = launcher.communicate(timeout=DEADLINE_S)[1]

    assert launcher.returncode == 75
    assert said.endswith(PLAN + OUTCOME)
    assert [event["event"] for event in read_events(tmp_path / "events")][-2:] == ["requeuing", "requeued"]


def test_slurm_refuses_to_requeue_and_the_launcher_says_so(start: Start) -> None:
    launcher = start(on_requeue="echo 'Requested operation is presently disabled' >&2; exit 1")

    said = launcher.communicate(timeout=DEADLINE_S)[1]

    assert launcher.returncode == 75
    assert PLAN in said
    assert "presently disabled" in said
    assert said.endswith(f"healthctl launch: no attempt possible ({REASON[26:-1]}); exit 75: requeue it\n")

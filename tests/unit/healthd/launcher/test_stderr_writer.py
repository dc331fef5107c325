"""A launcher whose standard error is of no use to anybody any more: it goes on all the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from healthd.launcher.backends.slurm_backend import SlurmRun
from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.scheduler_backend import Attempt
from healthd.launcher.stderr_writer import StderrWriter
from tests.unit.healthd.launcher.launcher_process import DEADLINE_S, argv, wait_until

SAVES = """
trap 'sleep 0.2; echo SAVED > "$0/saved"; exit 91' TERM
echo ready > "$0/ready.new"; mv "$0/ready.new" "$0/ready"
while :; do sleep 0.05; done
"""
SAVING = ("--gate", "off", "--", "sh", "-c", SAVES)


@pytest.mark.parametrize("broken", ["reader gone", "reader asleep", "full disk", "none at all"])
def test_ranks_save_though_the_launcher_can_say_nothing(tmp_path: Path, broken: str) -> None:
    reading, writing = os.pipe()
    if broken == "reader asleep":
        fill(writing)
    if broken == "full disk":
        os.close(writing)
        writing = os.open("/dev/full", os.O_WRONLY)
    command = argv(*SAVING, str(tmp_path), nodes="n0")
    if broken == "none at all":
        command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command]
    launcher = subprocess.Popen(command, stderr=writing)
    os.close(writing)
    wait_until((tmp_path / "ready").exists, "the rank did not start")
    if broken == "reader gone":
        os.close(reading)

    launcher.terminate()

    assert launcher.wait(DEADLINE_S) == 143
    assert (tmp_path / "saved").read_text() == "SAVED\n"
    if broken != "reader gone":
        os.close(reading)


def fill(descriptor: int) -> None:
    """Leave no room in a pipe."""
    os.set_blocking(descriptor, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(descriptor, b"x" * 4096)
    os.set_blocking(descriptor, True)


FLOOD = "for i in $(seq 20000); do echo 'a warning of the training library, of every rank of a job' >&2; done; echo 'srun: error: n0: task 0: Exited with exit code 90' >&2"


def test_what_srun_says_is_read_though_nobody_hears_it(tmp_path: Path) -> None:
    """In a program of its own, whose standard error is a full disk; what srun says is more than a pipe holds."""
    program = tmp_path / "reads.py"
    program.write_text(
        "import subprocess, time\n"
        "from healthd.launcher.backends.slurm_backend import SlurmRun\n"
        "from healthd.launcher.scheduler_backend import Attempt\n"
        f"srun = subprocess.Popen(['sh', '-c', {FLOOD!r}], stderr=subprocess.PIPE)\n"
        "run = SlurmRun(Attempt(1, 'j', ('n0',), 1, ('x',)), '1', srun, 's')\n"
        "while not run.over(): time.sleep(0.01)\n"
        "print([end.code for end in run.ended()])\n"
    )
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=full, check=False, timeout=DEADLINE_S,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])},
        )  # fmt: skip

    assert (done.returncode, done.stdout) == (0, b"[90]\n")


def test_a_step_whose_words_nobody_takes_still_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    asleep = StderrWriter(writing, room_bytes=1 << 18)
    monkeypatch.setattr("healthd.launcher.stderr_writer._voice", asleep)
    srun = subprocess.Popen(["sh", "-c", FLOOD], stderr=subprocess.PIPE)

    run = SlurmRun(Attempt(1, "j", ("n0",), 1, ("x",)), "1", srun, "s")

    wait_until(run.over, "the step does not end")
    assert run.ended() == [RankEnd(0, "n0", 90)]
    os.close(reading)
    assert asleep.drain(DEADLINE_S)
    os.close(writing)


def test_what_is_said_comes_out_in_order_and_what_is_lost_is_counted() -> None:
    reading, writing = os.pipe()
    voice = StderrWriter(writing, room_bytes=1 << 18)
    line = b"y" * (1 << 16)
    fill(writing)
    for _ in range(10):
        voice.say(line)
    heard: list[bytes] = []
    listener = threading.Thread(target=listen, args=(reading, heard))
    listener.start()
    assert voice.drain(DEADLINE_S)

    voice.say(b"the end\n")

    assert voice.drain(DEADLINE_S)
    os.close(writing)
    listener.join()
    os.close(reading)
    said = b"".join(heard)
    assert said.lstrip(b"x") == line * 4 + b"healthctl launch: 6 lines dropped: the reader was too slow\nthe end\n"


def listen(descriptor: int, heard: list[bytes]) -> None:
    while chunk := os.read(descriptor, 1 << 16):
        heard.append(chunk)

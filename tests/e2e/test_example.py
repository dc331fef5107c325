"""The example as a reader runs it: one command, on this machine, without a healthd; told to stop, it goes on where it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train_gpt.py"
DEADLINE_S = 120.0
STEPS = 60

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]


class Example:
    """`make example`, with its files in a place of the test's."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._make: subprocess.Popen[bytes] | None = None

    def start(self, steps: int) -> Example:
        argv = ["make", "--silent", "example", f"EXAMPLE={self.place / 'example'}", f"STEPS={steps}"]
        argv += ["--assume-old=venv"]  # the one that runs this test will do
        with (self.place / "log").open("ab") as log:
            self._make = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        return self

    def finish(self) -> int:
        assert self._make is not None
        return self._make.wait(DEADLINE_S)

    def interrupt(self) -> None:
        """Ctrl-C in the terminal: the whole foreground gets it."""
        assert self._make is not None
        os.killpg(self._make.pid, signal.SIGINT)

    def close(self) -> None:
        if self._make is not None and self._make.poll() is None:
            os.killpg(self._make.pid, signal.SIGKILL)
            self._make.wait()

    def log(self) -> str:
        return (self.place / "log").read_text(errors="replace")

    def saved(self) -> list[int]:
        return sorted(int(path.name[5:]) for path in (self.place / "example" / "checkpoints").glob("step-*"))


@pytest.fixture
def example(tmp_path: Path) -> Iterator[Example]:
    made = Example(tmp_path)
    yield made
    made.close()


def test_it_is_short() -> None:
    assert EXAMPLE.read_text().count("\n") < 100


def test_one_command_trains_saves_and_ends(example: Example) -> None:
    assert example.start(STEPS).finish() == 0, example.log()

    assert "attempt 1: 4 ranks on" in example.log()
    assert "training continues without" not in example.log()  # it has beacons, with or without a healthd
    assert re.findall(r"^step +(\d+) loss \d", example.log(), re.MULTILINE) == ["0", "25", "50"]
    assert example.saved()[-1] == STEPS - 1


def test_interrupted_it_saves_and_the_next_run_goes_on(example: Example) -> None:
    example.start(100_000)
    end = time.monotonic() + DEADLINE_S
    while "step   25 loss" not in example.log():
        assert time.monotonic() < end, example.log()
        time.sleep(0.05)
    example.interrupt()
    assert example.finish() != 0

    saved = example.saved()[-1]
    assert saved >= 25
    assert example.start(saved + 3).finish() == 0, example.log()
    assert example.saved()[-1] == saved + 2
    assert example.log().count("step    0 loss") == 1

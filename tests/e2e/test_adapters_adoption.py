"""Adopting the guard in somebody's script: the diff in the documentation is the diff, and what it promises holds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_job import TrainingJob

ROOT = Path(__file__).parents[2]
BEFORE, AFTER = ROOT / "examples" / "adopt_before.py", ROOT / "examples" / "adopt_after.py"
DOCUMENT = ROOT / "docs" / "how-to" / "adopting.md"
STEPS = 600


class AdoptionJob(TrainingJob):
    """Two ranks of one of the two scripts."""

    def start_script(self, script: Path, *options: str) -> AdoptionJob:
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off"]
        argv += [f"--node-names={','.join(self.nodes)}", f"--events={self._events}", *options]
        argv += ["--", sys.executable, str(script), f"--steps={STEPS}", f"--checkpoint={self.place / 'spirals.pt'}"]
        environ = {**os.environ, "HEALTHD_BEACON_DIR": str(self.beacons), "HEALTHD_JOB": "job", "OMP_NUM_THREADS": "1"}
        with (self.place / "log").open("ab") as log:
            self._launcher = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)
        return self

    def printed(self) -> list[tuple[int, str]]:
        """The steps and losses in the order they were printed."""
        return [(int(step), loss) for step, loss in re.findall(r"^step (\d+) loss (\S+)$", self.log(), re.MULTILINE)]


def difference() -> str:
    """What changed but for indentation, a line of context on each side."""
    command = ["git", "diff", "--no-index", "--no-color", "-w", "-U1", str(BEFORE), str(AFTER)]
    text = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return "\n".join(line.rstrip() for line in text[text.index("@@") :].splitlines())


def test_the_documented_diff_is_the_diff() -> None:
    assert f"```diff\n{difference()}\n```" in DOCUMENT.read_text()


def test_it_takes_five_lines() -> None:
    assert len([line for line in difference().splitlines() if re.match(r"\+.*\S", line)]) == 5


def test_the_examples_run_by_themselves(tmp_path: Path) -> None:
    printed = []
    for script in (BEFORE, AFTER):
        argv = [sys.executable, str(script), "--steps=30", f"--checkpoint={tmp_path / script.stem}.pt"]
        done = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=tmp_path)
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert printed[0].count("step ") == 30


@pytest.mark.torch
@pytest.mark.timeout(240)
def test_after_an_order_the_adopted_script_ends_as_the_other_would_have(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
    before = AdoptionJob(tmp_path / "before", nodes=("n0", "n1")).start_script(BEFORE)
    assert before.finish() == 0, before.log()
    after = AdoptionJob(tmp_path / "after", nodes=("n0", "n1", "n2")).start_script(AFTER, "--spares=1")
    try:
        after.order(after.ranks(world=2, step=5))
        assert after.finish() == 0, after.log()
    finally:
        after.close()
    assert after.codes(1) == [91, 90]
    assert [event["nodes"] for event in after.events("attempt_started")] == [["n0", "n1"], ["n0", "n2"]]
    assert [step for step, _ in before.printed()] == list(range(STEPS))
    assert after.printed() == before.printed()

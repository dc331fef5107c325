"""The bench on a plain copy: only torch, triton, our own words and their neighbours may be imported."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[4]
# What the house has and a bare card's machine has not. numpy belongs to torch and to Triton's interpreter.
RUN = """
import runpy, sys

class Blocked:
    unwanted = {"msgspec", "click", "yaml", "requests", "prometheus_client", "sqlalchemy", "starlette", "pyarrow",
                "healthd", "remediator", "healthctl", "playbooks"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.unwanted:
            raise ModuleNotFoundError(f"{name} is not to be imported here", name=name)

sys.meta_path.insert(0, Blocked())
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition("/")[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def bench(tmp_path: Path) -> str:
    for name in ("bench", "preflight", "vocabulary"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    return str(tmp_path / "bench" / "preflight_gpu.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *arguments], capture_output=True, text=True, check=False, timeout=110
    )


def test_without_a_gpu_it_says_so_in_one_line(bench: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = run(bench)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("no GPU that torch can use here")


def test_interpreted_everything_works_and_every_fault_is_found_where_it_is(bench: str, tmp_path: Path) -> None:
    done = run(bench, "--interpret", "--json", str(tmp_path / "rows.json"))
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads((tmp_path / "rows.json").read_text())
    faults = {row["name"]: row["note"].partition(":")[0] for row in rows if row["section"] == "faults"}
    assert faults == dict.fromkeys(
        ("bit flip in memory", "one output", "NaN in one output", "the same in all outputs", "bit flip in an operand"),
        "detected",
    )
    whole = [row for row in rows if row["section"] == "whole card" and row["unit"] == "s"]
    assert [row["note"].partition(";")[0] for row in whole] == ["no errors"] * 3
    repeated = [row["note"] for row in rows if row["name"].endswith("repeatability")]
    assert len(repeated) == 7
    assert all(note.startswith("all digests equal") and "checksums right" in note for note in repeated)
    assert not any(row["name"] == "STOPPED" for row in rows)

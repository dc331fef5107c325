"""The whole path, run as a person runs it; then again with one process killed at a named point of the story."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from healthctl.demo.scenario import POINTS, TARGETS
from healthctl.demo.slurm_cluster import explain_missing_slurm

DEADLINE_S = 900
HEALTHCTL = Path(sys.executable).with_name("healthctl")
# One with every test run, and one without a scheduler, at points where most is under way; all of them with `make chaos`.
KILL, KILL_WITHOUT_SCHEDULER = "healthd@graceful-ordered", "remediator@abort-fault"
ALL_KILLS = [f"{target}@{point}" for target in TARGETS for point in POINTS] + [
    "rank:1@graceful-ordered",  # the condemned node's own
    "healthd:3@abort-ordered",  # a survivor's
]

pytestmark = pytest.mark.timeout(DEADLINE_S + 20)


def play(workdir: Path, *options: str) -> dict[str, Any]:
    """Run the demo; its JSON. A failing one shows its checks and the logs' last words."""
    argv = [str(HEALTHCTL), "demo", "-o", "json", f"--dir={workdir}", *options]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    failed = [f"{check['name']}: {check['detail']}" for check in found["checks"] if not check["ok"]]
    story = "\n".join(f"{e['at_s']:8.2f} {e['source']:10} {e.get('node', ''):8} {e['text']}" for e in found["timeline"])
    assert not failed, "\n".join([*failed, story])
    assert found["ok"] is True
    assert done.returncode == 0
    return found


def workdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short, for the UNIX sockets below it."""
    return tmp_path_factory.mktemp("d", numbered=True)


@pytest.fixture
def backend() -> str:
    """A real Slurm where there is one; under CI there must be."""
    missing = explain_missing_slurm()
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"CI=true, and nothing may be skipped: {missing}")
    return "local" if missing else "slurm"


@pytest.mark.slurm
def test_the_demo_holds_all_its_checks_and_says_so_in_json(
    tmp_path_factory: pytest.TempPathFactory, backend: str
) -> None:
    found = play(workdir(tmp_path_factory), f"--backend={backend}")
    assert found["steps_lost"] == {"graceful": 0, "abort": 0}
    assert {"abort: fault → order in every mailbox", "graceful: fault → checkpoint complete"} <= set(
        found["latencies_ms"]
    )
    kinds = [entry["kind"] for entry in found["timeline"]]
    assert kinds.count("fault") == 2
    decisions = [entry for entry in found["timeline"] if entry["kind"] == "decision"]
    marked = [entry.get("injected", False) for entry in decisions]
    assert marked == [False, True], (
        "a pretended reading is not marked, and what is not marked makes its incident a real one"
    )


@pytest.mark.slurm
def test_a_kill_changes_nothing_in_the_end(tmp_path_factory: pytest.TempPathFactory, backend: str) -> None:
    play(workdir(tmp_path_factory), f"--backend={backend}", f"--kill={KILL}")


def test_nor_does_one_without_a_scheduler(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = play(workdir(tmp_path_factory), "--backend=local", f"--kill={KILL_WITHOUT_SCHEDULER}")
    assert found["steps_lost"]["graceful"] == 0


@pytest.mark.chaos
@pytest.mark.parametrize("kill", ALL_KILLS)
def test_a_kill_of_anything_anywhere(tmp_path_factory: pytest.TempPathFactory, backend: str, kill: str) -> None:
    play(workdir(tmp_path_factory), f"--backend={backend}", f"--kill={kill}")

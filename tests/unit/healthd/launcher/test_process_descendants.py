"""What ranks leave behind is ended after every attempt, and nothing else is. Real processes; the launcher is one, too."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.process_descendants import Process, list_descendants
from tests.unit.healthd.launcher.launcher_process import DEADLINE_S, argv, gone, wait_until

TELL = 'cd "{place}"; echo $$ > "{place}/{name}.new"; mv "{place}/{name}.new" "{place}/{name}"; exec sleep 300'
WAYS = {
    "in the background": "sh {worker} &",
    "in a session of its own": "setsid sh {worker} &",
    "forked twice": "(setsid sh {worker} &) &",
    "forked twice, without its environment": "(setsid env -i PATH=$PATH sh {worker} &) &",
    "deaf": "trap '' TERM INT HUP; (setsid sh {worker} &) &",
}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for told in tmp_path.glob("pid.*"):
        pid = pid_in(told)
        if not gone(pid) and Path(f"/proc/{pid}/cwd").readlink() == tmp_path:
            os.kill(pid, signal.SIGKILL)


def starts_worker(place: Path, way: str, name: str) -> str:
    """A line of shell that starts a worker, and waits until it has told its number."""
    worker = place / f"start.{name}"
    worker.write_text(TELL.format(place=place, name=name))
    return f"{WAYS[way].format(worker=worker)} while [ ! -e {place}/{name} ]; do sleep 0.02; done"


def pid_in(path: Path) -> int:
    return int(path.read_text())


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("way", WAYS)
def test_a_worker_that_outlives_its_rank_is_ended_with_the_attempt(place: Path, way: str, code: int) -> None:
    script = f"{starts_worker(place, way, 'pid.worker')}; exit {code}"

    done = subprocess.run(
        argv("--gate", "off", "--", "sh", "-c", script, nodes="n0"),
        capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip

    assert done.returncode == code, done.stderr  # its end was read: no worker holds the pipe
    assert gone(pid_in(place / "pid.worker"))
    assert "ended 1 process left by the ranks" in done.stderr


def test_a_rank_that_is_killed_takes_with_it_what_has_left_it(place: Path) -> None:
    stays = starts_worker(place, "forked twice", "pid.worker")
    script = f'[ "$RANK" = 1 ] && {{ {stays}; exec sleep 300; }}; while [ ! -e {place}/pid.worker ]; do sleep 0.02; done; exit 7'
    options = ("--max-crashes", "1", "--leave-seconds", "0.2", "--gate", "off")

    done = subprocess.run(
        argv(*options, "--", "sh", "-c", script, nodes="n0,n1"),
        stderr=subprocess.PIPE, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip

    assert done.returncode == 7, done.stderr
    assert gone(pid_in(place / "pid.worker"))


@pytest.mark.parametrize("way", ["in the background", "in a session of its own", "forked twice"])
def test_what_the_launcher_did_not_start_is_left_alone(place: Path, way: str) -> None:
    """A batch script starts something, then becomes the launcher: its child is now the launcher's, its orphan too."""
    other = starts_worker(place, way, "pid.other")
    late = f"(while [ ! -e {place}/pid.worker ]; do sleep 0.02; done; {starts_worker(place, 'forked twice', 'pid.late')}) &"
    script = (
        f"{starts_worker(place, 'forked twice', 'pid.worker')}; while [ ! -e {place}/pid.late ]; do sleep 0.02; done"
    )
    launcher = shlex.join(argv("--gate", "off", "--", "sh", "-c", script, nodes="n0"))

    done = subprocess.run(
        ["sh", "-c", f"{other}; {late} exec {launcher}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=DEADLINE_S,
    )  # fmt: skip

    assert done.returncode == 0
    assert gone(pid_in(place / "pid.worker"))
    assert not gone(pid_in(place / "pid.other"))
    assert not gone(pid_in(place / "pid.late"))


def test_orphans_that_end_by_themselves_do_not_pile_up(place: Path) -> None:
    script = f"for i in 1 2 3 4 5; do (setsid true &) & done; wait; touch {place}/begun; exec sleep 300"
    launcher = subprocess.Popen(argv("--gate", "off", "--", "sh", "-c", script, nodes="n0"), stderr=subprocess.DEVNULL)
    wait_until((place / "begun").exists, "the rank did not start")

    wait_until(lambda: len(children(launcher.pid)) == 1, "dead orphans stay in the table")

    launcher.terminate()
    assert launcher.wait(DEADLINE_S) == 143


def children(parent: int) -> list[int]:
    said = subprocess.run(["ps", "-o", "pid=", "--ppid", str(parent)], capture_output=True, text=True, check=False)
    return [int(word) for word in said.stdout.split()]


@given(st.dictionaries(st.integers(2, 30), st.integers(1, 30), max_size=20))
def test_below_is_what_has_the_ancestor_above_it(parents: dict[int, int]) -> None:
    parents = {pid: parent for pid, parent in parents.items() if parent < pid}
    processes = [Process(pid, parent, 0, 0) for pid, parent in parents.items()]

    def has_above(pid: int) -> bool:
        return pid in parents and (parents[pid] == 1 or has_above(parents[pid]))

    assert {process.pid for process in list_descendants(1, processes)} == {pid for pid in parents if has_above(pid)}

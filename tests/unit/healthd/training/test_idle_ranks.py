"""A rank that computes nothing in the middle of a step, and all that only looks like it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from healthd.checks.training_checks import Limits, TrainingCheck
from healthd.collectors.process_cpu_time import read_tree_cpu_seconds
from healthd.findings.facts import Moment, Raise
from healthd.samples.rank_steps import RankSteps
from healthd.thresholds import load_thresholds
from vocabulary.finding import Severity

LIMITS = load_thresholds().section("training", Limits)
GPU = "GPU-1"


def looks(
    cpu_s: Callable[[float], float | None],
    gpu_percent: Callable[[float], int | None] = lambda _: 0,
    section: str = "backward",
    completed: int = 100,
    seconds: int = 60,
) -> list[Raise]:
    """What is raised while one rank stays where it is: its CPU seconds and its GPU's utilisation by time."""
    check = TrainingCheck(LIMITS)
    found: list[Raise] = []
    for at in range(seconds):
        rank = RankSteps("j", 1, 0, 2, 9, True, completed, completed, "step", section, gpu=GPU, cpu_s=cpu_s(at))
        facts = check.judge([rank], Moment(1e9 + at, float(at)), {GPU: gpu_percent(at)})
        found += [fact for fact in facts if isinstance(fact, Raise) and fact.code == "rank_idle"]
    return found


def test_a_rank_without_any_work_is_reported_with_its_numbers() -> None:
    found = looks(lambda _: 50.0)
    assert (found[0].severity, found[0].component.name) == (Severity.WARNING, "j.1")
    assert found[0].evidence == {
        "job": "j", "attempt": 1, "ranks": "0", "step": 100, "section": "backward", "idle_s": LIMITS.rank_idle_s,
        "cpu_percent": 0.0, "gpu_percent": 0,
    }  # fmt: skip
    assert len(found) == 60 - LIMITS.rank_idle_s


def test_a_rank_whose_gpu_is_unknown_is_reported_by_its_cpu() -> None:
    found = looks(lambda _: 50.0, lambda _: None)
    assert "gpu_percent" not in found[0].evidence
    assert "its GPU is not known" in found[0].summary


def test_threads_that_only_wake_up_to_look_are_no_work() -> None:
    assert looks(lambda at: 50.0 + 0.03 * at)


def test_it_is_reported_between_two_readings_as_well() -> None:
    assert len(looks(lambda at: 50.0 if at % 5 == 0 else None)) == 60 - LIMITS.rank_idle_s


@pytest.mark.parametrize(
    "busy",
    [
        {"cpu_s": lambda at: 50.0 + at},  # a compilation, or a wait that polls
        {"cpu_s": lambda _: 50.0, "gpu_percent": lambda _: 100},  # waits in a collective
        {"cpu_s": lambda _: 50.0, "gpu_percent": lambda at: 100 if at % 8 == 0 else 0},
        {"cpu_s": lambda _: 50.0, "section": "data"},  # slow storage
        {"cpu_s": lambda _: 50.0, "section": "checkpoint"},
        {"cpu_s": lambda _: 50.0, "section": "communication"},
        {"cpu_s": lambda _: 50.0, "section": ""},  # a loop without sections
        {"cpu_s": lambda _: 50.0, "completed": 3},  # warm-up
        {"cpu_s": lambda _: None},  # not read
    ],
)
def test_what_works_or_may_wait_for_the_host_is_not_reported(busy: dict[str, object]) -> None:
    assert looks(**busy) == []  # type: ignore[arg-type] - arguments by name


def test_progress_starts_the_time_anew() -> None:
    check = TrainingCheck(LIMITS)
    found = []
    for at in range(60):
        rank = RankSteps("j", 1, 0, 2, 9, True, 100 + at // 8, 100 + at // 8, "step", "backward", cpu_s=50.0)
        found += [
            fact
            for fact in check.judge([rank], Moment(1e9 + at, float(at)))
            if getattr(fact, "code", "") == "rank_idle"
        ]
    assert found == []


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield child
    finally:
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()


def test_the_cpu_time_of_a_process_holds_that_of_its_children() -> None:
    spins = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    with running(spins) as child:
        deadline = time.monotonic() + 60
        while (read_tree_cpu_seconds(child.pid) or 0.0) < 0.5:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        own = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        assert sum(map(int, own[11:13])) / os.sysconf("SC_CLK_TCK") < 0.5
        grandchild = int(Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()[0])
        os.kill(grandchild, signal.SIGKILL)


def test_a_stopped_process_uses_none_and_an_ended_one_has_none() -> None:
    with running("while True: pass") as child:
        child.send_signal(signal.SIGSTOP)
        while "T" not in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[:1]:
            time.sleep(0.01)
        first = read_tree_cpu_seconds(child.pid)
        time.sleep(0.2)
        assert read_tree_cpu_seconds(child.pid) == first
    assert read_tree_cpu_seconds(child.pid) is None


def test_a_process_with_more_threads_than_are_read_is_not_judged(tmp_path: Path) -> None:
    process = tmp_path / "7"
    for task in range(3000):
        (process / "task" / str(task)).mkdir(parents=True)
    (process / "stat").write_text("7 (x) S " + " ".join(["0"] * 10) + " 1 2 3 4 0 0")
    assert read_tree_cpu_seconds(7, tmp_path) is None


@pytest.mark.parametrize("stat", ["", "7 (x", "7 (x) S 1 2", "7 (x) S " + " ".join(["x"] * 20)])
def test_a_malformed_stat_file_is_no_cpu_time(tmp_path: Path, stat: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(stat)
    assert read_tree_cpu_seconds(7, tmp_path) is None

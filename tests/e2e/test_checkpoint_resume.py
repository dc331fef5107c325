"""Killed in the middle and started again: every number of the run that was not disturbed, bit for bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import DEADLINE_S, RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # many starts of real processes
JOB = Path(__file__).with_name("resume_job.py")
Start = Callable[..., RankProcesses]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[RankProcesses] = []

    def begin(place: Path, steps: int, world: int = 2, pace: float = 0.0) -> RankProcesses:
        place.mkdir(exist_ok=True)
        started.append(RankProcesses(place, world, JOB, place, steps, pace))
        return started[-1]

    yield begin
    for job in started:
        job.kill()


def history(place: Path, rank: int) -> dict[int, str]:
    """Each step's numbers; a step that was trained twice must have given the same both times."""
    found: dict[int, str] = {}
    for line in (place / f"losses-{rank}").read_text().splitlines():
        step, _, numbers = line.partition(" ")
        assert found.setdefault(int(step), numbers) == numbers, f"step {step} came out differently"
    return found


def test_killed_and_resumed_equals_undisturbed_bit_for_bit(tmp_path: Path, start: Start) -> None:
    straight = start(tmp_path / "straight", 20)
    assert straight.finish() == [0, 0], straight.log()

    cut = tmp_path / "cut"
    first = start(cut, 20, pace=0.2)
    end = time.monotonic() + DEADLINE_S
    while not (cut / "checkpoints" / "step-000000009").exists():
        assert time.monotonic() < end, first.log()
        assert first.processes[0].poll() is None, first.log()
        time.sleep(0.01)
    first.kill()
    assert len(history(cut, 0)) < 20
    resumed = start(cut, 20)
    assert resumed.finish() == [0, 0], resumed.log()

    for rank in range(2):
        expected, found = history(tmp_path / "straight", rank), history(cut, rank)
        assert sorted(expected) == list(range(20))
        assert {step: found[step] for step in expected} == expected


def test_another_number_of_ranks_goes_on_with_the_next_samples(tmp_path: Path, start: Start) -> None:
    place = tmp_path / "job"
    first = start(place, 10, world=2)
    assert first.finish() == [0, 0], first.log()
    second = start(place, 15, world=3)
    assert second.finish() == [0, 0, 0], second.log(2)

    assert sorted(history(place, 2)) == list(range(10, 15))
    assert "saved by 2 ranks, this job has 3: random generators" in second.log()

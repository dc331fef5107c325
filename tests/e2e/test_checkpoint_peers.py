"""Copies in the neighbours' memory: a node is lost with its memory, and every rank goes on where it was."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from ranks import DEADLINE_S, RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # many starts of real processes
JOB = Path(__file__).with_name("peer_job.py")
LOST_PEER_JOB = Path(__file__).with_name("lost_peer_job.py")
WORLD = 3


def said(place: Path, rank: int, word: str) -> list[tuple[int, str]]:
    lines = [line.split() for line in (place / f"log-{rank}").read_text().splitlines()]
    return [(int(line[1]), line[2]) for line in lines if line[:1] == [word] and len(line) == 3]


def run_and_kill(place: Path, steps: int) -> None:
    job = RankProcesses(place, WORLD, JOB, place, 0)
    end = time.monotonic() + DEADLINE_S
    try:
        while any(len(said(place, rank, "step")) < steps for rank in range(WORLD)):
            assert time.monotonic() < end, job.log()
            assert all(process.poll() is None for process in job.processes), job.log()
            time.sleep(0.01)
    finally:
        job.kill()


def run_on(place: Path) -> list[tuple[int, str]]:
    """Start all ranks again; with what each begins."""
    job = RankProcesses(place, WORLD, JOB, place, 1)
    try:
        assert job.finish() == [0] * WORLD, "\n".join(job.log(rank) for rank in range(WORLD))
    finally:
        job.kill()
    return [said(place, rank, "begins")[-1] for rank in range(WORLD)]


def test_a_lost_ranks_state_comes_from_its_neighbours_memory(tmp_path: Path) -> None:
    run_and_kill(tmp_path, 6)
    shutil.rmtree(tmp_path / "memory-1")  # the node is gone, a spare takes its rank
    for copy in (tmp_path / "memory-2").glob("*-rank-2-*"):  # bits rot in memory as well
        copy.write_bytes(copy.read_bytes()[:-1] + b"\x00\x01")

    begun = run_on(tmp_path)

    assert len({step for step, _ in begun}) == 1
    step = begun[0][0] - 1
    assert step >= 3  # newer than the checkpoint on the disk
    for rank, (_, found) in enumerate(begun):
        assert dict(said(tmp_path, rank, "step"))[step] == found
    assert (
        f"rank 1's state after step {step} comes from the memory of rank 2's node" in (tmp_path / "log-1").read_text()
    )
    assert "copy in memory not used" in (tmp_path / "log-2").read_text()

    for rank in (0, 1):  # two neighbours at once: more than memory can stand
        shutil.rmtree(tmp_path / f"memory-{rank}")
    begun = run_on(tmp_path)
    assert [number for number, _ in begun] == [2] * WORLD
    assert begun[0][1] == dict(said(tmp_path, 0, "step"))[1]


@pytest.mark.parametrize(("victim", "point"), [(2, "transfer"), (2, "finish")])
def test_a_rank_that_dies_while_the_ranks_copy_is_not_taken_for_a_copy_that_failed(
    tmp_path: Path, victim: int, point: str
) -> None:
    """Else the others would begin the next update, and train the step before it a second time."""
    job = RankProcesses(tmp_path, WORLD, LOST_PEER_JOB, tmp_path, victim, point)
    try:
        codes = job.finish()
    finally:
        job.kill()
    assert codes == [9 if rank == victim else 0 for rank in range(WORLD)], job.log()
    for rank in {0, 1, 2} - {victim}:
        assert job.log(rank).splitlines()[-1] == "lost", job.log(rank)

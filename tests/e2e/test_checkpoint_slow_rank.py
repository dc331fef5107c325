"""One rank is slow for longer than the ranks' deadline, once: the next save works, and what is said is true."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # real processes, and a real deadline that passes
JOB = Path(__file__).with_name("slow_rank_job.py")


def run(place: Path, case: str) -> list[list[str]]:
    """What each rank said, by rank, without its log."""
    job = RankProcesses(place, 2, JOB, place, case)
    try:
        assert job.finish() == [0, 0], "\n".join(job.log(rank) for rank in range(2))
    finally:
        job.kill()
    logs = [(place / f"log-{rank}").read_text().splitlines() for rank in range(2)]
    return [[line for line in log if line.startswith(("saved", "failed", "begins"))] for log in logs]


def steps_in(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


@pytest.mark.parametrize("case", ["writing", "differing"])
def test_a_save_that_failed_on_one_rank_failed_on_all_and_the_next_one_works(tmp_path: Path, case: str) -> None:
    for said in run(tmp_path, case):
        assert said[0] == "saved step-000000000"
        assert said[1].startswith("failed 1 step ")
        assert "was not saved, the previous checkpoint stays" in said[1]
        assert said[2:] == ["saved step-000000002", "saved step-000000003", "begins 4"]
        if case == "differing":
            assert "rank 0 saves step 1, rank 1 step 2" in said[1]
    assert steps_in(tmp_path / "checkpoints") == [0, 2, 3]


def test_a_save_that_rank_0_concluded_late_is_saved_on_every_rank(tmp_path: Path) -> None:
    saved = [f"saved step-00000000{step}" for step in range(4)]
    assert run(tmp_path, "renaming") == [[*saved, "begins 4"]] * 2
    assert steps_in(tmp_path / "checkpoints") == [0, 1, 2, 3]


def test_deleting_what_is_no_more_needed_holds_nobody_up(tmp_path: Path) -> None:
    saved = [f"saved step-00000000{step}" for step in range(4)]
    assert run(tmp_path, "deleting") == [[*saved, "begins 4"]] * 2
    assert steps_in(tmp_path / "checkpoints") == [3]


def test_copies_in_memory_go_on_after_a_slow_one(tmp_path: Path) -> None:
    for said in run(tmp_path, "copying"):
        assert said[0] == "saved 0"
        assert said[1].startswith("failed 1 step 1 is not held in memory")
        assert said[2:] == ["saved 2", "saved 3", "begins 4"]

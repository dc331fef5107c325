"""A checkpoint that one rank cannot load: all ranks go on from the one before."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # starts of real processes
JOB = Path(__file__).with_name("refusing_job.py")


def test_all_ranks_fall_back_to_the_same_checkpoint(tmp_path: Path) -> None:
    job = RankProcesses(tmp_path, 2, JOB, tmp_path)
    try:
        assert job.finish() == [0, 0], job.log(0) + job.log(1)
    finally:
        job.kill()
    for rank in range(2):
        assert "begins with 2, counters of step 1" in job.log(rank)
    assert "step-000000002: does not fit this state: ValueError: not here" in job.log()
    assert sorted(each.name for each in (tmp_path / "checkpoints").iterdir()) == [
        "abandoned-step-000000002",
        "step-000000001",
        "step-000000002",
    ]

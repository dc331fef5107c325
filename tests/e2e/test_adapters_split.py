"""What goes wrong on one rank alone goes wrong on all, or one would wait for the other in a collective."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # real processes
JOB = Path(__file__).with_name("split_ranks_job.py")


def test_ranks_that_see_different_things_do_the_same(tmp_path: Path) -> None:
    job = RankProcesses(tmp_path, 2, JOB, tmp_path)
    try:
        assert job.finish() == [0, 0], "\n".join(job.log(rank) for rank in range(2))
    finally:
        job.kill()
    said = [
        [line for line in job.log(rank).splitlines() if line.startswith(("saved", "failed", "loaded", "told"))]
        for rank in range(2)
    ]
    assert said[0] == [
        "saved global_step1",
        "failed 2 rank 1: OSError: [Errno 28] No space lef",
        f"failed 3 [Errno 36] File name too long: '{tmp_path}"[:49],
        "loaded {'from': 'global_step1'}",
        "told [0, 1]",
    ]
    assert said[1] == [
        "saved global_step1",
        "failed 2 [Errno 28] No space left on device",
        "failed 3 rank 0: OSError: [Errno 36] File name to",
        "loaded {'from': 'global_step1'}",
        "told [0, 1]",
    ]

"""FSDP2's sharded state: saved behind training's back by two ranks, loaded by one, two and three, every bit of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import RankProcesses

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # many starts of real processes
JOB = Path(__file__).with_name("fsdp_job.py")


def digest(place: Path, world: int, deed: str) -> str:
    job = RankProcesses(place, world, JOB, place, deed)
    try:
        assert job.finish() == [0] * world, job.log()
    finally:
        job.kill()
    return next(line for line in reversed(job.log().splitlines()) if line.startswith("digest"))


def test_sharded_state_comes_back_at_any_world_size(tmp_path: Path) -> None:
    saved = digest(tmp_path, 2, "save")

    assert {world: digest(tmp_path, world, "load") for world in (1, 2, 3)} == {1: saved, 2: saved, 3: saved}

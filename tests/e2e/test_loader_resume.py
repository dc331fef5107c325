"""Killed at steps within an epoch and at its borders, with a loader as documented: the losses of the run that was not disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import RankProcesses
from test_checkpoint_resume import history

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]  # many starts of real processes
JOB = Path(__file__).with_name("loader_job.py")
STEPS, NEVER = 14, -1
KILLED_AFTER = (2, 4, 9)  # between two saves; at an epoch's end, not saved; at an epoch's end, just saved


def run(place: Path, dies_after: int, *options: object) -> list[int]:
    place.mkdir(exist_ok=True)
    job = RankProcesses(place, 2, JOB, place, STEPS, dies_after, *options)
    try:
        return job.finish()
    finally:
        job.kill()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("undisturbed")
    assert run(place, NEVER, 0, False) == [0, 0]
    return place


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_killed_and_resumed_equals_undisturbed_bit_for_bit(
    workers: int,
    persistent: bool,  # noqa: FBT001 - a parameter of the test
    undisturbed: Path,
    tmp_path: Path,
) -> None:
    cut = tmp_path / "cut"
    for step in KILLED_AFTER:
        assert -9 in run(cut, step, workers, persistent)
    assert run(cut, NEVER, workers, persistent) == [0, 0]
    for rank in range(2):
        expected = history(undisturbed, rank)
        assert sorted(expected) == list(range(STEPS))
        assert history(cut, rank) == expected
        assert len((cut / f"losses-{rank}").read_text().splitlines()) > STEPS

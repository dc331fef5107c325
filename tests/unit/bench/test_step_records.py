"""What a bench of replaced ranks accepts as training that nothing has disturbed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.ranks.step_records import StepLog, StepRecord, compute_losses, list_differences, read_records

WORLD = 3
LOSSES = compute_losses(4, WORLD)
UNDISTURBED = [StepRecord(0, step, loss.hex()) for step, loss in enumerate(LOSSES) for _ in range(WORLD)]


def test_the_ranks_of_an_undisturbed_run_differ_in_nothing(tmp_path: Path) -> None:
    for member in range(WORLD):
        log = StepLog(tmp_path, member)
        for step, loss in enumerate(LOSSES):
            log.add(0, step, loss)

    assert sorted(read_records(tmp_path)) == sorted(UNDISTURBED)
    assert list_differences(UNDISTURBED, WORLD) == []


def test_a_step_that_one_generation_began_and_the_next_one_finished_is_trained_once() -> None:
    swapped = [record._replace(generation=int(record.step > 1)) for record in UNDISTURBED]
    assert list_differences(swapped, WORLD) == []


@pytest.mark.parametrize(
    ("records", "difference"),
    [
        ([], "no step was trained"),
        ([record for record in UNDISTURBED if record.step != 2], "step 2 is lost"),
        ([*UNDISTURBED, UNDISTURBED[-1]._replace(generation=1)], "step 3 was trained by generations [0, 1]"),
        ([*UNDISTURBED[:-1], StepRecord(0, 3, (LOSSES[3] * (1 + 2**-52)).hex())], "step 3 has a loss of"),
    ],
    ids=["nothing", "lost", "twice", "one bit"],
)
def test_each_difference_is_named(records: list[StepRecord], difference: str) -> None:
    assert [each[: len(difference)] for each in list_differences(records, WORLD)] == [difference]

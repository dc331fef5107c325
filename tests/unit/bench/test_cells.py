"""Cells are the real pipeline on made-up days: the same day twice decides the same, and budgets hold in a burst."""

from __future__ import annotations

import msgspec

from bench.cells import Ask, Day, large_job, run_day

ASK = Ask(seed=3, nodes=300, burst=40)


def decided(found: Day) -> tuple[int, dict[str, int], int]:
    return found.faults, found.decisions, found.isolated_most


def test_a_day_is_a_function_of_its_seed() -> None:
    first, again, other = run_day(ASK), run_day(ASK), run_day(msgspec.structs.replace(ASK, seed=4))
    assert decided(first) == decided(again)
    assert decided(first) != decided(other)


def test_a_burst_isolates_no_more_than_the_budget() -> None:
    found = run_day(ASK)
    assert found.decisions["hold"] >= ASK.burst - 6
    assert found.isolated_most <= 0.02 * ASK.nodes


def test_a_large_job_leaves_whole() -> None:
    assert large_job(24) >= 0  # it asserts that the job left

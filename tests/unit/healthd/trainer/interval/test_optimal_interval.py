from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.interval.cost_estimates import HazardEstimate, MedianCost
from healthd.trainer.interval.optimal_interval import daly_s, estimate_waste, young_daly_s

HOUR = 3600.0
STALLS = st.floats(0.01, 600)
MTBFS = st.floats(600, 1e7)


def test_the_textbook_case() -> None:
    assert young_daly_s(60, 50_000 * HOUR / 512) == pytest.approx(6495.2, abs=0.1)
    assert daly_s(60, 50_000 * HOUR / 512) == pytest.approx(6455.3, abs=0.5)


@given(STALLS, MTBFS)
def test_no_other_interval_wastes_noticeably_less_than_dalys(stall_s: float, mtbf_s: float) -> None:
    best = estimate_waste(daly_s(stall_s, mtbf_s), stall_s, mtbf_s).total
    for factor in (0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2, 4):
        assert estimate_waste(daly_s(stall_s, mtbf_s) * factor, stall_s, mtbf_s).total >= best - 0.002


@given(st.floats(1e-3, 1e9), STALLS, MTBFS, st.floats(0, 1e5), st.floats(0, 1e4))
def test_the_shares_add_up_to_the_whole(
    interval_s: float, stall_s: float, mtbf_s: float, restart_s: float, write_s: float
) -> None:
    waste = estimate_waste(interval_s, stall_s, mtbf_s, restart_s, write_s)
    assert sum(waste) == pytest.approx(1, abs=1e-6)
    assert all(0 <= share <= 1 + 1e-9 for share in waste)


def test_the_model_agrees_with_a_job_that_is_played_through() -> None:
    interval_s, stall_s, mtbf_s, restart_s = 1000.0, 30.0, 8000.0, 200.0
    dice = random.Random(7)  # noqa: S311 - a simulation
    clock, saved, segments = 0.0, 0, 30_000
    while saved < segments:
        until_failure = dice.expovariate(1 / mtbf_s)
        if until_failure >= interval_s + stall_s:
            clock, saved = clock + interval_s + stall_s, saved + 1
            continue
        clock += until_failure
        while (fails := dice.expovariate(1 / mtbf_s)) < restart_s:
            clock += fails
        clock += restart_s
    played = 1 - segments * interval_s / clock
    assert estimate_waste(interval_s, stall_s, mtbf_s, restart_s).total == pytest.approx(played, abs=0.005)


@pytest.mark.parametrize(
    ("stall_s", "mtbf_s"), [(-1, 10), (1, 0), (1, -5), (float("nan"), 10), (1, float("inf")), (float("inf"), 1)]
)
def test_what_is_no_time_is_refused(stall_s: float, mtbf_s: float) -> None:
    for formula in (young_daly_s, daly_s):
        with pytest.raises(ValueError, match="must be"):
            formula(stall_s, mtbf_s)
    with pytest.raises(ValueError, match="must be"):
        estimate_waste(100, stall_s, mtbf_s)


def test_a_save_dearer_than_the_time_between_failures_is_made_once_in_that_time() -> None:
    assert daly_s(500, 100) == 100


def test_a_job_that_cannot_get_through_wastes_everything() -> None:
    assert estimate_waste(1e9, 1, 1).total == 1


def test_one_odd_save_moves_no_median() -> None:
    cost = MedianCost(60)
    assert cost.seconds == 60
    for seconds in (4, 5, 400, 5, float("nan"), -1):
        cost.add(seconds)
    assert cost.seconds == 5


def test_a_job_learns_its_hazard_from_what_it_lives_through() -> None:
    hazard = HazardEstimate(nodes=100, node_mtbf_s=1000 * HOUR)
    assert 1 / hazard.per_s() == pytest.approx(10 * HOUR)
    hazard.lived(100 * HOUR)
    assert 1 / hazard.per_s() > 50 * HOUR
    hazard.lived(0, failures=10)
    assert 1 / hazard.per_s() == pytest.approx(10 * HOUR)
    with pytest.raises(ValueError, match="must be above 0"):
        HazardEstimate(0, 1)

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from remediator.decisions.isolation_budget import IsolationBudget, level_only_budget
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.simulation.compared_policies import POLICIES
from remediator.simulation.fault_schedule import DAY_S, draw_fault_schedule
from remediator.simulation.simulation_parameters import SimulationParameters
from remediator.simulation.simulation_run import SimulationResult, run_simulation

POLICY = load_policy([SHIPPED])
FREE = level_only_budget(10**6)
QUIET: dict[str, Any] = {
    "nodes": 80, "days": 10.0, "failures_per_1000_node_days": 0.0, "lemon_share": 0.0, "straggler_share": 0.0,
    "user_fault_share": 0.0, "budget": FREE, "spares_per_1024": 100,
}  # fmt: skip


def run(name: str, seed: int = 3, **different: Any) -> SimulationResult:
    return run_simulation(
        name, SimulationParameters(**{**QUIET, **different}), POLICY, seed, np.random.default_rng(seed)
    )


def total(name: str, field: str, seeds: int = 6, **different: Any) -> float:
    return sum(getattr(run(name, seed, **different), field) for seed in range(seeds))


@pytest.mark.parametrize("name", POLICIES)
def test_a_fleet_without_faults_loses_only_what_saves_cost(name: str) -> None:
    found = run(name, checkpoint_interval_minutes=30, checkpoint_pause_s=180)
    assert found.effective_time == pytest.approx(1 / 1.1, rel=0.02)
    assert (found.isolations, found.by_people, found.wrong_actions, found.restarts_per_day) == (0, 0, 0, 0)


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_run_and_the_sums_fit_each_other(name: str) -> None:
    rough: dict[str, Any] = {
        "failures_per_1000_node_days": 60.0, "lemon_share": 0.03, "straggler_share": 0.05, "user_fault_share": 0.24,
        "budget": IsolationBudget(),
    }  # fmt: skip
    found = run(name, **rough)
    assert found == run(name, **rough)
    assert found != run(name, 4, **rough)
    assert 0 < found.goodput < found.effective_time < 1
    assert found.goodput <= SimulationParameters(**QUIET).utilisation + 0.01
    assert found.wrong_actions <= found.isolations
    assert 0 <= found.healthy_node_days_lost <= found.out_node_days


def test_policies_meet_the_same_world() -> None:
    p = SimulationParameters(nodes=300, days=30)
    assert draw_fault_schedule(p, np.random.default_rng(5)) == draw_fault_schedule(p, np.random.default_rng(5))
    many = [len(draw_fault_schedule(p, np.random.default_rng(seed)).faults) for seed in range(40)]
    first_times = 300 * 30 * 6.5 / 1000 * (1 - 0.42)  # repetitions bring the fleet up to the published rate
    assert np.mean(many) == pytest.approx(first_times, rel=0.08)
    assert all(fault.at_s <= 30 * DAY_S for fault in draw_fault_schedule(p, np.random.default_rng(5)).faults)


def test_users_mistakes_take_no_node_with_the_shipped_playbook_and_many_with_plain_ones() -> None:
    users: dict[str, Any] = {"user_fault_share": 1.0, "small_job_h": 12.0}
    plain = run("eject", **users)
    assert plain.wrong_actions == plain.isolations > 20
    assert plain.healthy_node_days_lost > 0
    shipped = run("checkpoint-eject", **users)
    assert (shipped.isolations, shipped.wrong_actions) == (0, 0)
    assert shipped.job_failures > 20


def test_saving_in_time_loses_less_work_and_the_oracle_loses_none() -> None:
    faults: dict[str, Any] = {"failures_per_1000_node_days": 40.0, "silent_share": 0.0, "big_share": 1.0}
    lost = {name: total(name, "lost_node_days", **faults) for name in ("none", "eject", "checkpoint-eject", "oracle")}
    assert lost["oracle"] == 0 < lost["checkpoint-eject"] < 0.9 * lost["eject"]
    assert lost["eject"] < lost["none"]


def test_without_anybody_a_broken_node_stops_its_job_until_people_find_it() -> None:
    broken: dict[str, Any] = {"failures_per_1000_node_days": 20.0, "lasting_share": 1.0, "silent_share": 1.0}
    quick, slow = (run("none", people_find_h=hours, **broken) for hours in (0.5, 12.0))
    assert quick.isolations == slow.isolations == 0 < slow.by_people
    assert slow.effective_time < quick.effective_time
    assert slow.restarts_per_day > 3 * quick.restarts_per_day


def test_the_oracle_takes_no_sound_node() -> None:
    found = run("oracle", failures_per_1000_node_days=60.0, lemon_share=0.05, straggler_share=0.1)
    assert found.isolations > 0
    assert (found.wrong_actions, found.healthy_node_days_lost, found.by_people) == (0, 0, 0)


def test_budgets_hold_back_what_people_then_do() -> None:
    faults: dict[str, Any] = {"failures_per_1000_node_days": 40.0, "lasting_share": 1.0, "silent_share": 0.0}
    shut = IsolationBudget(isolated_max=0, isolated_fraction_max=0.0)
    held, free = run("checkpoint-eject", budget=shut, **faults), run("checkpoint-eject", **faults)
    assert held.isolations == 0 < held.by_people
    assert free.isolations > 0
    assert free.by_people < held.by_people / 2  # those that leave no finding


def test_tests_before_a_return_spare_repetitions() -> None:
    again: dict[str, Any] = {
        "failures_per_1000_node_days": 40.0, "refail_day_share": 0.8, "refail_month_share": 0.9, "silent_share": 0.0,
        "lasting_share": 0.0, "test_finds_share": 1.0, "lemons_every_h": 1e6,
    }  # fmt: skip
    without, with_test = (total(name, "node_faults", **again) for name in ("lemons", "retest"))
    assert with_test < 0.8 * without


def test_lemons_that_leave_no_finding_are_found_by_their_failures() -> None:
    silent: dict[str, Any] = {
        "nodes": 200, "days": 30.0, "failures_per_1000_node_days": 10.0, "lemon_share": 0.01, "lemon_times": 100.0,
        "silent_share": 1.0, "lemon_silent_share": 1.0, "lasting_share": 0.0, "refail_day_share": 0.0,
        "refail_month_share": 0.0, "big_share": 1.0,
    }  # fmt: skip
    assert run("checkpoint-eject", **silent).isolations == 0
    found = run("lemons", **silent)
    assert found.isolations > 0 == found.wrong_actions
    assert found.node_faults < run("checkpoint-eject", **silent).node_faults
    # People agree to what waits for them: nobody stays out until the end of time.
    assert found.out_node_days < 3 * found.isolations


def test_a_slow_node_is_taken_out_and_repaired() -> None:
    slow: dict[str, Any] = {"straggler_share": 0.1, "big_share": 1.0, "test_finds_share": 1.0}
    acted, left = run("checkpoint-eject", **slow), run("none", **slow)
    assert acted.isolations > 0 == acted.wrong_actions
    assert acted.effective_time > left.effective_time + 0.02


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"restart_min_minutes": 30}, "restart_min_minutes is above"),
        ({"refail_day_share": 0.5}, "refail_day_share is above"),
        ({"nodes": 10, "job_nodes": (8, 8)}, "take 16 nodes"),
        ({"nodes": 4, "spares_per_1024": 1024}, "leave none for a job"),
        ({"days": float("nan")}, "days"),
        ({"days": 0}, "days"),
        ({"lemon_share": 1.5}, "lemon_share"),
        ({"lemmon_share": 0.1}, "lemmon_share"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        msgspec.convert(wrong, SimulationParameters)

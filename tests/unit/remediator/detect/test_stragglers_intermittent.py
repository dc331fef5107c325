"""Slow now and then, a node among tensor groups, a slow rank among fast ones: who is named, and what is a duty."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bench.traces import Columns, Fault, Job, build_columns
from remediator.detection.stragglers.step_trace import build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers
from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict

STEPS = 200


def named(found: StragglerVerdict) -> list[int]:
    return sorted(culprit.rank for culprit in found.culprits)


def now_and_then(rank: int, slow: npt.NDArray[np.bool_]) -> StragglerVerdict:
    rows = build_columns(Job(steps=STEPS), 0)
    factor = np.where((rows["rank"] == rank) & slow[rows["step"].astype(int)], 1.4, 1.0)
    return judge_stragglers(
        build_step_trace({**rows, **{name: rows[name] * factor for name in ("compute_s", "forward_s", "backward_s")}})
    )


AT = np.arange(STEPS)
IN_PAIRS, EVERY_FIFTH = AT % 10 < 2, AT % 5 == 0
BY_CHANCE = np.random.default_rng(0).random(STEPS) < 0.2


@pytest.mark.parametrize("slow", [IN_PAIRS, BY_CHANCE], ids=["pairs", "chance"])
def test_a_rank_that_is_slow_again_and_again_is_named(slow: npt.NDArray[np.bool_]) -> None:
    found = now_and_then(5, slow)
    assert (found.verdict, named(found)) == (SlowdownKind.GPU, [5])
    assert found.culprits[0].slowdown == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(("rank", "slow"), [(0, IN_PAIRS), (15, IN_PAIRS), (5, EVERY_FIFTH), (5, AT % 50 < 2)])
def test_duties_of_the_first_and_last_rank_regular_ones_and_rare_ones_blame_nobody(
    rank: int, slow: npt.NDArray[np.bool_]
) -> None:
    assert named(now_and_then(rank, slow)) == []


@pytest.mark.parametrize("seed", [20, 29])
def test_who_has_the_hottest_expert_in_all_steps_is_not_slow_again_and_again(seed: int) -> None:
    assert named(judge_stragglers(build_step_trace(build_columns(Job(dp=64, steps=100, experts=0.1), seed)))) == []


def waits(who: range) -> Columns:
    rows = build_columns(Job(steps=STEPS, dp=32), 0)
    calm = np.random.default_rng(1).gamma(2, 0.01, rows["rank"].size)
    step = np.repeat(np.arange(STEPS), 32)
    stalls = np.isin(rows["rank"], who) & (step % 4 == 0) & (step >= 40)
    return {**rows, "data_s": calm + np.where(stalls, 1.5, 0.0)}


def test_a_host_whose_loader_stalls_now_and_then_is_named() -> None:
    found = judge_stragglers(build_step_trace(waits(range(8, 16))))
    assert (found.verdict, named(found), found.first_step) == (SlowdownKind.HOST_IO, list(range(8, 16)), 40)


def test_loaders_of_several_hosts_that_stall_at_once_blame_none_of_them() -> None:
    assert named(judge_stragglers(build_step_trace(waits(range(4, 12))))) == []


def test_the_slowest_rank_of_a_slow_node_does_not_stand_for_it_though_it_waits_least() -> None:
    job = Job(dp=4, tp=8, silicon=0.01, faults=tuple(Fault(rank, 0.2, 30) for rank in range(8, 16)))
    found = judge_stragglers(build_step_trace(build_columns(job, 3)))
    assert (found.verdict, named(found)) == (SlowdownKind.NODE, list(range(8, 16)))


def test_a_rank_as_slow_as_the_slower_product_is_none_of_it_on_a_node_of_fast_ones() -> None:
    found = judge_stragglers(build_step_trace(build_columns(Job(dp=64, slow_product=0.5, faults=(Fault(3, 0.18),)), 0)))
    assert named(found) == [3]


@pytest.mark.parametrize(("packed", "kind"), [(0.1, SlowdownKind.DATA), (0.0, SlowdownKind.NODE)])
def test_a_pipeline_on_a_node_of_its_own_is_data_where_lengths_differ_in_all(packed: float, kind: SlowdownKind) -> None:
    faults = tuple(Fault(rank, 0.25) for rank in range(24, 32))
    found = judge_stragglers(
        build_step_trace(build_columns(Job(steps=120, dp=8, pp=4, tp=2, packed=packed, faults=faults), 0))
    )
    assert (found.verdict, bool(found.culprits)) == (kind, kind is SlowdownKind.NODE)


def test_transfers_that_take_longer_for_all_are_the_network_and_nobody() -> None:
    rows = build_columns(Job(steps=90), 0)
    longer = np.where(np.repeat(np.arange(90), 16) >= 40, 0.3, 0.0)
    found = judge_stragglers(build_step_trace({**rows, "comm_s": np.asarray(rows["comm_s"], float) + longer}))
    assert (found.verdict, named(found), found.first_step) == (SlowdownKind.LINK, [], 40)

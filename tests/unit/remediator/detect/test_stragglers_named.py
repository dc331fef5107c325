"""Culprits are found: whoever is slow, however it comes, and since when."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from bench.traces import Columns, Fault, Job, build_columns
from remediator.detection.stragglers.link_attribution import blame_shared_unit
from remediator.detection.stragglers.step_trace import build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers
from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict

ONLY = ("job", "step", "rank", "compute_s")


def verdict(job: Job, seed: int = 0, *, only: bool = False, tokens: bool = False) -> StragglerVerdict:
    rows = build_columns(job, seed, tokens=tokens)
    return judge_stragglers(build_step_trace({name: rows[name] for name in ONLY} if only else rows))


def named(found: StragglerVerdict) -> list[int]:
    return sorted(culprit.rank for culprit in found.culprits)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("job", "ranks", "since", "late_max"),
    [
        (Job(faults=(Fault(3, 0.15, 30),)), [3], 30, 1),
        (Job(faults=(Fault(0, 0.15, 0),)), [0], 0, 0),
        (Job(steps=30, dp=512, faults=(Fault(300, 0.10, 15),)), [300], 15, 1),
        (Job(steps=30, dp=8, faults=(Fault(3, 0.08, 0),)), [3], 0, 0),
        (Job(dp=4, faults=(Fault(3, 0.10, 25),)), [3], 25, 1),
        (Job(dp=64, steps=120, noise=0.12, faults=(Fault(3, 0.25, 60),)), [3], 60, 12),
        (Job(steps=120, faults=(Fault(3, 0.15, 40, 70),)), [3], 40, 1),
        (Job(steps=120, faults=(Fault(3, 0.2, 40, course="ramp"),)), [3], 40, 6),
        (Job(steps=120, faults=(Fault(3, 0.2, 40, course="flicker"),)), [3], 40, 1),
        (Job(steps=90, faults=(Fault(3, 0.15, 40), Fault(9, 0.3, 50))), [3, 9], 40, 1),
    ],
    ids=["15%", "first-step", "512", "30-steps", "4-ranks", "noisy", "recovers", "ramp", "throttles", "two"],
)
def test_a_slow_rank_is_named_from_its_compute_alone(
    job: Job, ranks: list[int], since: int, late_max: int, seed: int
) -> None:
    found = verdict(job, seed, only=True)
    assert named(found) == ranks
    assert found.verdict is SlowdownKind.GPU
    assert found.first_step is not None
    assert abs(found.first_step - since) <= late_max
    assert found.confidence > 0.4


def test_a_slowdown_is_told_as_it_is_and_the_slowest_comes_first() -> None:
    found = verdict(Job(steps=90, faults=(Fault(3, 0.15, 40), Fault(9, 0.3, 50))))
    assert [culprit.rank for culprit in found.culprits] == [9, 3]
    assert found.culprits[0].slowdown == pytest.approx(0.3, abs=0.03)
    assert found.culprits[0].node == "n1"


def test_a_slow_rank_is_found_beside_an_odd_stage() -> None:
    assert named(verdict(Job(dp=8, pp=4, stages=(1, 1, 1, 1.3), faults=(Fault(6, 0.15, 30),)))) == [6]


def test_several_ranks_of_one_node_are_the_node() -> None:
    found = verdict(Job(steps=90, dp=32, faults=tuple(Fault(rank, 0.15, 40) for rank in range(8, 16))))
    assert found.verdict is SlowdownKind.NODE
    assert {culprit.node for culprit in found.culprits} == {"n1"}
    assert len(found.culprits) == 8


def test_one_slow_node_from_the_start_is_no_other_product() -> None:
    found = verdict(Job(steps=90, dp=32, faults=tuple(Fault(rank, 0.15) for rank in range(8, 16))))
    assert found.verdict is SlowdownKind.NODE
    assert found.first_step == 0


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_node_that_is_half_or_a_third_of_the_job_is_found_by_its_past(nodes: int) -> None:
    found = verdict(Job(steps=90, dp=8 * nodes, faults=tuple(Fault(rank, 0.15, 40) for rank in range(8, 16))))
    assert (found.verdict, found.first_step) == (SlowdownKind.NODE, 40)
    assert named(found) == list(range(8, 16))


def test_token_counts_make_packed_sequences_comparable() -> None:
    job = Job(dp=16, steps=90, packed=0.12, faults=(Fault(3, 0.08, 45),))
    assert named(verdict(job, only=True)) == []
    assert named(verdict(job, tokens=True)) == [3]


def test_the_other_stages_tell_how_long_the_sequences_were() -> None:
    job = Job(dp=16, pp=4, steps=90, packed=0.12, faults=(Fault(6, 0.08, 45),))
    assert named(verdict(job)) == [6]


def test_a_mixed_fleet_hides_no_culprit() -> None:
    assert named(verdict(Job(dp=64, slow_product=0.25, faults=(Fault(3, 0.15, 30),)))) == [3]


def test_tensor_parallel_victims_are_judged_with_their_group() -> None:
    found = verdict(Job(dp=8, pp=2, tp=4, tensor_waits=True, faults=(Fault(9, 0.2, 30),)))
    assert named(found) == [8, 9, 10, 11]
    assert "tensor_group_moves_together" in {reason.name for reason in found.reasons}


def test_within_a_tensor_group_who_waits_least_is_to_blame() -> None:
    rows = build_columns(Job(dp=8, pp=2, tp=4, tensor_waits=True, faults=(Fault(9, 0.2, 30),)), 0)
    waits = np.where((rows["rank"] == 9) & (rows["step"] >= 30), 0.02, 0.3)
    rows["comm_s"] = waits * np.random.default_rng(0).uniform(0.95, 1.05, waits.size)
    assert named(judge_stragglers(build_step_trace(rows))) == [9]


def test_own_time_without_waiting_names_one_of_a_tensor_group() -> None:
    assert named(verdict(Job(dp=8, pp=2, tp=4, faults=(Fault(9, 0.2, 30),)))) == [9]


def waits_for_data(rows: Columns, who: npt.NDArray[np.bool_]) -> Columns:
    calm = np.random.default_rng(1).gamma(2, 0.01, who.size)
    return {**rows, "data_s": calm + np.where(who & (rows["step"] >= 30), 0.4, 0.0)}


def test_one_rank_that_waits_for_data_is_a_host_in_trouble() -> None:
    rows = build_columns(Job(), 0)
    found = judge_stragglers(build_step_trace(waits_for_data(rows, rows["rank"] == 5)))
    assert (found.verdict, named(found), found.first_step) == (SlowdownKind.HOST_IO, [5], 30)


def test_a_storage_stall_of_everyone_names_no_rank() -> None:
    rows = build_columns(Job(steps=90), 0)
    found = judge_stragglers(build_step_trace(waits_for_data(rows, rows["rank"] >= 0)))
    assert (found.verdict, named(found), found.first_step) == (SlowdownKind.HOST_IO, [], 30)


def test_slow_in_the_forward_pass_alone_is_the_host() -> None:
    rows = build_columns(Job(), 0)
    late = np.where((rows["rank"] == 5) & (rows["step"] >= 30), 0.3, 0.0)
    rows = {**rows, "compute_s": rows["compute_s"] + late, "forward_s": rows["forward_s"] + late}
    found = judge_stragglers(build_step_trace(rows))
    assert (found.verdict, named(found)) == (SlowdownKind.HOST_IO, [5])


def slow_transfers(groups: int) -> StragglerVerdict:
    rows = build_columns(Job(dp=8, pp=4, tp=2, steps=90), 0)
    ring = (rows["pp_rank"] == 1) & (rows["tp_rank"] == 0)
    chain = (rows["dp_rank"] == 3) & (rows["tp_rank"] == 0)
    slow = (ring | chain if groups == 2 else ring) & (rows["step"] >= 40)
    comm = 0.3 * np.exp(np.random.default_rng(2).normal(0, 0.05, slow.size)) * np.where(slow, 1.8, 1.0)
    return judge_stragglers(build_step_trace({**rows, "comm_s": comm, "step_s": rows["compute_s"] + comm}))


def test_two_slow_groups_blame_the_rank_they_share() -> None:
    found = slow_transfers(2)
    assert (found.verdict, named(found), found.first_step) == (SlowdownKind.LINK, [26], 40)


def test_one_slow_group_blames_nobody() -> None:
    found = slow_transfers(1)
    assert (found.verdict, named(found)) == (SlowdownKind.LINK, [])


def test_one_slow_tensor_group_does_not_blame_the_node_it_lives_on() -> None:
    trace = build_step_trace(build_columns(Job(steps=1, dp=4, pp=2, tp=4), 0))
    tensor, chain = np.arange(4), np.array([0, 4])
    assert blame_shared_unit(trace, [tensor], []).columns == ()
    assert blame_shared_unit(trace, [tensor], []).slow_rings == 1
    assert blame_shared_unit(trace, [tensor, chain], []).columns == (0,)

"""Whole stages, slow nodes in noise, links and everyone at once: the verdict is right, and says what it cannot know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.straggler_cases import Case, Floats, SlowLink, SlowNode, build_case_columns
from bench.traces import Job, build_columns
from remediator.detection.stragglers.benign_causes import SLOW_NODE_POSSIBLE
from remediator.detection.stragglers.slowdown_onset import find_global_slowdown
from remediator.detection.stragglers.step_trace import StepTrace, build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers, usual_times
from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict

SEEDS = range(3)
STAGES = Case(dp=1, pp=4)
NOISY = Case(dp=4, noise=0.05)
PACKED = Case(dp=8, pp=4, tp=2, lengths=0.2)
RING = Case(dp=16, tp=1, noise=0.03)


def trace_of(case: Case, seed: int = 0, *, tokens: bool = False) -> StepTrace:
    return build_step_trace(build_case_columns(case, seed, tokens=tokens))


def verdict(case: Case, seed: int = 0, *, tokens: bool = False) -> StragglerVerdict:
    return judge_stragglers(trace_of(case, seed, tokens=tokens))


def named(found: StragglerVerdict) -> frozenset[int]:
    return frozenset(culprit.rank for culprit in found.culprits)


def reasons(found: StragglerVerdict) -> set[str]:
    return {reason.name for reason in found.reasons}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "shape",
    [
        STAGES,
        replace(STAGES, dp=8, tp=1),
        Case(dp=1, pp=2, tp=4, node_ranks=4),
        Case(dp=1, pp=4, tp=1, node_ranks=1),
        replace(STAGES, lengths=0.1),
    ],
    ids=["one-replica", "eight-replicas", "two-stages", "single-ranks", "unequal-lengths"],
)
def test_a_node_that_is_a_whole_stage_is_found_by_its_own_past(shape: Case, seed: int) -> None:
    case = replace(shape, slow=(SlowNode(1, 0.25, 48),))
    found = verdict(case, seed)
    assert (found.verdict, named(found)) == (SlowdownKind.NODE, case.culprits)
    assert found.first_step is not None
    assert abs(found.first_step - 48) <= 3
    assert found.confidence <= 0.5, "no peer confirms it"


@pytest.mark.parametrize("seed", range(8))
def test_unequal_lengths_of_all_stages_excuse_no_node(seed: int) -> None:
    case = replace(STAGES, lengths=0.1, slow=(SlowNode(1, 0.2, 48),))
    assert named(verdict(case, seed)) == case.culprits


def test_a_node_with_peers_elsewhere_is_surer_than_one_without() -> None:
    case = Case(dp=2, pp=2, tp=8, slow=(SlowNode(1, 0.25, 48),))
    assert named(verdict(case)) == case.culprits
    assert verdict(case).confidence > 0.5


def test_a_stage_on_one_node_that_was_always_slow_does_not_exclude_the_node() -> None:
    found = verdict(replace(STAGES, slow=(SlowNode(1, 0.3),)))
    assert (found.verdict, named(found)) == (SlowdownKind.STAGE, frozenset())
    assert found.confidence <= 0.5
    assert SLOW_NODE_POSSIBLE in reasons(found)


def test_a_stage_over_several_nodes_is_the_stage() -> None:
    found = verdict(replace(PACKED, lengths=0, stages=(1, 1, 1, 1.3)))
    assert (found.verdict, SLOW_NODE_POSSIBLE in reasons(found)) == (SlowdownKind.STAGE, False)
    assert found.confidence == 0.9


def test_an_earlier_trace_tells_a_slow_node_from_a_slow_stage() -> None:
    trace = trace_of(replace(STAGES, slow=(SlowNode(1, 0.25, 48),)))
    before, later = trace.until(47), build_step_trace(
        {name: values[rows] for name, values in build_case_columns(replace(STAGES, slow=(SlowNode(1, 0.25, 48),)), 0).items()
         for rows in [np.repeat(np.arange(96) >= 56, 32)]}
    )  # fmt: skip
    assert judge_stragglers(later).verdict is SlowdownKind.STAGE
    found = judge_stragglers(later, usual_times(before))
    assert (found.verdict, named(found)) == (SlowdownKind.NODE, frozenset(range(8, 16)))
    assert judge_stragglers(later, usual_times(later)).verdict is SlowdownKind.STAGE, "it was always like that"


def test_all_stages_slower_than_in_the_past_blame_no_node() -> None:
    trace = trace_of(STAGES)
    assert named(judge_stragglers(trace, usual_times(trace) / 1.3)) == frozenset()


def test_a_node_that_slowed_down_more_than_the_others_did_is_not_named_by_the_past() -> None:
    trace = trace_of(STAGES)
    more = np.where(np.arange(32) // 8 == 1, 1.35, 1.15)
    assert named(judge_stragglers(trace, usual_times(trace) / more)) == frozenset()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("since", [0, 48])
@pytest.mark.parametrize("each", [False, True])
def test_a_slow_node_is_found_in_noise_that_hides_its_ranks(since: int, seed: int, *, each: bool) -> None:
    case = replace(NOISY, noise_in="each" if each else "both", slow=(SlowNode(2, 0.1, since),))
    found = verdict(case, seed)
    assert (found.verdict, named(found)) == (SlowdownKind.NODE, case.culprits)


@pytest.mark.parametrize("seed", range(40))
def test_nodes_that_are_not_equally_fast_are_no_culprits(seed: int) -> None:
    assert named(verdict(Case(dp=5, noise=0.005, node_speeds=0.03), seed)) == frozenset()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_slow_rank_is_not_its_node(seed: int) -> None:
    rows = build_case_columns(replace(NOISY, dp=8, noise=0.01), seed)
    slow = np.where(rows["rank"] == 19, 1.6, 1.0)
    rows |= {name: np.asarray(rows[name], float) * slow for name in ("compute_s", "forward_s", "backward_s")}
    found = judge_stragglers(build_step_trace(rows))
    assert (found.verdict, named(found)) == (SlowdownKind.GPU, {19})


@pytest.mark.parametrize("seed", SEEDS)
def test_one_of_two_nodes_that_was_always_slower_is_undecided_and_no_data(seed: int) -> None:
    found = verdict(replace(NOISY, dp=2, slow=(SlowNode(1, 0.1),)), seed)
    assert (found.verdict, named(found)) == (SlowdownKind.NOBODY, frozenset())
    assert "undecided_node_slower" in reasons(found)
    assert found.confidence <= 0.3


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_that_both_passes_share_is_weak_evidence_of_data(seed: int) -> None:
    assert verdict(NOISY, seed).verdict is SlowdownKind.DATA
    assert verdict(NOISY, seed).confidence <= 0.6


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shape", [Case(dp=16, pp=4, tp=1), Case(dp=8, pp=4, tp=4)], ids=["ranks", "tensor-groups"])
def test_rings_blame_the_node_that_they_share(shape: Case, seed: int) -> None:
    case = replace(shape, slow=(SlowLink(3, 1.0, 48),))
    found = verdict(case, seed)
    assert (found.verdict, named(found)) == (SlowdownKind.LINK, case.culprits)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_ring_of_the_whole_job_blames_nobody(seed: int) -> None:
    found = verdict(replace(RING, slow=(SlowLink(1, 1.2, 48),)), seed)
    assert (found.verdict, named(found)) == (SlowdownKind.LINK, frozenset())
    assert found.first_step is not None
    assert abs(found.first_step - 48) <= 3


@pytest.mark.parametrize("seed", range(20))
def test_congestion_that_comes_and_goes_is_no_slow_link(seed: int) -> None:
    rows = build_case_columns(replace(RING, steps=200), seed)
    sea = np.random.default_rng(seed).normal(0, 1, 200)
    for step in range(1, 200):
        sea[step] = 0.8 * sea[step - 1] + 0.6 * sea[step]
    longer = np.asarray(rows["comm_s"], float) + np.repeat(0.4 * np.exp(0.25 * sea), 16)
    assert judge_stragglers(build_step_trace({**rows, "comm_s": longer})).verdict is not SlowdownKind.LINK


def waits_for_the_slowest(job: Job, slower: Floats, seed: int) -> StragglerVerdict:
    rows = build_columns(job, seed)
    own = np.asarray(rows["compute_s"], float).reshape(job.steps, -1) * slower
    waits = own.max(axis=1, keepdims=True) - own + 0.1
    rows |= {"compute_s": own.reshape(-1), "comm_s": waits.reshape(-1)}
    return judge_stragglers(build_step_trace({name: values for name, values in rows.items() if name != "node"}))


@pytest.mark.parametrize("seed", SEEDS)
def test_rings_that_wait_for_slow_computation_elsewhere_are_not_slow(seed: int) -> None:
    slow = np.ones((90, 9))
    slow[45:, 0] = 1.4
    found = waits_for_the_slowest(Job(steps=90, dp=3, pp=3), slow, seed)  # too few to be compared
    assert found.verdict is not SlowdownKind.LINK


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stage_that_became_faster_and_waits_has_no_slow_ring(seed: int) -> None:
    slow = np.ones((90, 48))
    slow[45:, 2::8] = 0.8
    found = waits_for_the_slowest(Job(steps=90, dp=6, pp=8), slow, seed)
    assert (found.verdict is SlowdownKind.LINK, named(found)) == (False, frozenset())


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_eight_percent_of_everyone_is_global(noise: float, seed: int) -> None:
    found = verdict(Case(noise=noise, everyone=0.08, since=48), seed)
    assert (found.verdict, named(found)) == (SlowdownKind.GLOBAL, frozenset())


def test_a_rise_must_be_clear_of_how_the_series_wanders() -> None:
    usable = np.ones(96, dtype=np.bool_)
    jump = 0.2 * (np.arange(96) >= 48)
    waves = 0.1 * np.sin(np.arange(96) / 4)
    assert find_global_slowdown(jump, usable, clear=6) is not None
    assert find_global_slowdown(waves, usable, clear=6) is None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("tokens", [False, True])
@pytest.mark.parametrize(
    "case",
    [PACKED, replace(PACKED, stages=(1, 1, 1, 1.12)), replace(PACKED, dp=4, tp=8, pp=8)],
    ids=["alone", "beside-a-slower-stage", "few-replicas"],
)
def test_lengths_over_stages_are_data(case: Case, seed: int, *, tokens: bool) -> None:
    found = verdict(case, seed, tokens=tokens)
    assert (found.verdict, named(found)) == (SlowdownKind.DATA, frozenset())


@pytest.mark.parametrize(
    ("case", "seed"),
    [(Case(dp=4, pp=4, tp=4, lengths=0.35), 5004), (Case(dp=8, pp=4, tp=1, lengths=0.35, steps=400), 5002)],
)
def test_a_replica_whose_sequences_happened_to_be_longer_is_no_culprit_in_any_stage(case: Case, seed: int) -> None:
    assert named(verdict(case, seed)) == frozenset()


def test_a_stage_that_costs_more_than_the_lengths_is_the_stage() -> None:
    assert verdict(replace(PACKED, lengths=0.03, stages=(1, 1, 1, 1.4))).verdict is SlowdownKind.STAGE

"""Nobody is blamed for what the job, its data or its habits do: one test for each known way to be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from bench.traces import Fault, Job, build_columns
from remediator.detection.stragglers.step_trace import build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers
from remediator.detection.stragglers.straggler_verdict import SlowdownKind, StragglerVerdict

SEEDS = range(4)


def verdict(job: Job, seed: int, *, tokens: bool = False, without: tuple[str, ...] = ()) -> StragglerVerdict:
    rows = build_columns(job, seed, tokens=tokens)
    return judge_stragglers(build_step_trace({name: values for name, values in rows.items() if name not in without}))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("job", "kind"),
    [
        (Job(), SlowdownKind.NOBODY),
        (Job(dp=8, pp=4, stages=(1, 1, 1, 1.3)), SlowdownKind.STAGE),
        (Job(steps=100, packed=0.12), SlowdownKind.DATA),
        (Job(steps=300, gc_every=40), SlowdownKind.GC),
        (Job(dp=64, steps=120, experts=0.1), SlowdownKind.NOBODY),
        (Job(steps=200, checkpoint_every=10), SlowdownKind.APPLICATION),
        (Job(steps=200, evaluate_every=20), SlowdownKind.NOBODY),
        (Job(dp=64, slow_product=0.5), SlowdownKind.NOBODY),
        (Job(dp=64, slow_product=0.25), SlowdownKind.NOBODY),
        (Job(steps=90, everyone=0.2), SlowdownKind.GLOBAL),
        (Job(steps=90, silicon=0.02), SlowdownKind.NOBODY),
        (Job(steps=90, faults=tuple(Fault(rank, 0.15) for rank in range(8, 16))), SlowdownKind.NOBODY),
        (Job(dp=3, faults=(Fault(2, 0.5, 30),)), SlowdownKind.NOBODY),
        (Job(dp=3, faults=(Fault(1, 0.3, 30), Fault(2, 0.3, 30))), None),
        (Job(dp=16, faults=(Fault(3, 0.03, 30),)), SlowdownKind.NOBODY),
    ],
    ids=[
        "healthy", "last-stage-skew", "packed-sequences", "garbage-collection", "experts", "rank-0-saves", "evaluation",
        "half-another-product", "quarter-another-product", "everyone-slow-at-once", "silicon", "one-of-two-nodes-since-ever", "too-few-peers",
        "two-culprits-among-few-peers", "too-little-to-matter",
    ],
)  # fmt: skip
def test_nobody_is_named(job: Job, kind: SlowdownKind | None, seed: int) -> None:
    found = verdict(job, seed)
    assert found.culprits == ()
    assert kind is None or found.verdict is kind


@pytest.mark.parametrize("seed", SEEDS)
def test_long_sequences_that_are_reported_are_data(seed: int) -> None:
    rows = build_columns(Job(steps=100), seed)
    longer = np.where(rows["rank"] == 5, 1.5, 1.0)  # always the same rank: without counts nobody could tell
    rows = {**rows, "compute_s": rows["compute_s"] * longer, "tokens": np.round(8192 * longer)}
    found = judge_stragglers(build_step_trace(rows))
    assert (found.verdict, found.culprits) == (SlowdownKind.DATA, ())


def test_a_pipeline_that_is_slow_in_every_stage_works_on_long_sequences() -> None:
    job = Job(dp=8, pp=4, steps=90, faults=tuple(Fault(rank, 0.2, 40) for rank in range(8, 12)), node_ranks=2)
    assert (verdict(job, 0).verdict, verdict(job, 0).culprits) == (SlowdownKind.DATA, ())


def test_warm_up_after_a_restart_is_no_onset() -> None:
    rows = build_columns(Job(steps=120), 0)
    back = (rows["step"] >= 60) & (rows["step"] < 72) & (rows["rank"] == 4)
    at = rows["step"] * 2.0 + np.where(rows["step"] >= 60, 900.0, 0.0)
    slow = rows["compute_s"] * np.where(back, 1.5, 1.0)
    only = {name: rows[name] for name in ("step", "rank")}
    assert judge_stragglers(build_step_trace({**only, "compute_s": slow, "time": at})).culprits == ()


def test_clocks_that_disagree_change_nothing() -> None:
    rows = build_columns(Job(faults=(Fault(3, 0.15, 30),)), 0)
    skewed = rows["step"] * 2.0 + np.where(rows["rank"] == 7, -86400.0, 0.0) + rows["rank"] * 0.1
    found = judge_stragglers(build_step_trace({**rows, "time": skewed}))
    assert [culprit.rank for culprit in found.culprits] == [3]


def test_a_slow_baseline_is_still_slow_against_peers() -> None:
    found = verdict(Job(steps=120, faults=(Fault(3, 0.15, 0),)), 0)
    assert [culprit.rank for culprit in found.culprits] == [3]
    assert found.first_step == 0


def test_step_time_alone_says_when_and_never_who() -> None:
    rows = build_columns(Job(steps=90, faults=(Fault(3, 0.3, 45),)), 0)
    found = judge_stragglers(build_step_trace({name: rows[name] for name in ("step", "rank", "step_s")}))
    assert found.verdict is SlowdownKind.NOBODY
    assert found.culprits == ()
    assert found.first_step is not None
    assert abs(found.first_step - 45) <= 1


def test_a_monitor_that_goes_silent_is_no_culprit_and_hides_none() -> None:
    rows = build_columns(Job(faults=(Fault(3, 0.15, 30),)), 0)
    heard = (rows["rank"] != 6) | (rows["step"] < 20)
    found = judge_stragglers(build_step_trace({name: values[heard] for name, values in rows.items()}))
    assert [culprit.rank for culprit in found.culprits] == [3]


def test_stages_that_nobody_named_are_not_culprits() -> None:
    job = Job(dp=16, pp=8, stages=(1, 1, 1, 1, 1, 1, 1, 1.3))
    assert verdict(job, 0, without=("stage", "dp_rank", "pp_rank", "tp_rank", "node")).culprits == ()


def test_an_abstention_says_what_it_could_have_seen() -> None:
    calm, wild = verdict(Job(), 0), verdict(Job(noise=0.3), 0, without=("forward_s", "backward_s"))
    seen = [
        next(reason.value for reason in found.reasons if reason.name == "smallest_slowdown_visible")
        for found in (calm, wild)
    ]
    assert seen[0] < 0.1 < seen[1]
    assert calm.confidence > wild.confidence


def test_what_rank_0_does_outside_both_passes_is_its_duty() -> None:
    rows = build_columns(Job(), 0)
    logs = np.where(rows["rank"] == 0, 0.25, 0.0)
    found = judge_stragglers(build_step_trace({**rows, "compute_s": rows["compute_s"] + logs}))
    assert (found.verdict, found.culprits) == (SlowdownKind.APPLICATION, ())

"""Values that are none, rows in any order and twice, reports that are late: no crash, no culprit, no look ahead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.traces import Columns, Fault, Job, build_columns
from remediator.detection.stragglers.robust_statistics import (
    binomial_tail,
    critical_spreads,
    excess_over_others,
    nan_median,
)
from remediator.detection.stragglers.step_trace import build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers

HEALTHY = build_columns(Job(steps=40, dp=8), 0, tokens=True)
SICK = build_columns(Job(steps=60, dp=8, faults=(Fault(3, 0.2, 20),)), 0, tokens=True)
NOTHING = st.sampled_from([np.nan, 0.0, -1.0, -1e300, np.inf, -np.inf])
FEW = settings(max_examples=40, deadline=None)


def spoiled(rows: Columns, name: str, values: list[float], seed: int, share: float) -> Columns:
    draw = np.random.default_rng(seed)
    hit = draw.random(rows["step"].size) < share
    return {**rows, name: np.where(hit, draw.choice(values, hit.size), rows[name].astype(float))}


@FEW
@given(
    st.lists(NOTHING, min_size=1, max_size=3),
    st.integers(0, 999),
    st.floats(0, 1),
    st.sampled_from(["compute_s", "forward_s", "backward_s", "comm_s", "step_s", "tokens", "rank", "step", "dp_rank"]),
)
@example([np.nan, 0.0], 0, 0.5, "comm_s")  # whose exchanges took any time at all stood out
def test_what_is_no_measurement_makes_no_culprit(values: list[float], seed: int, share: float, name: str) -> None:
    assert judge_stragglers(build_step_trace(spoiled(HEALTHY, name, values, seed, share))).culprits == ()


@FEW
@given(st.integers(0, 999), st.floats(0, 0.05))
def test_wild_values_here_and_there_make_no_culprit(seed: int, share: float) -> None:
    assert (
        judge_stragglers(build_step_trace(spoiled(HEALTHY, "compute_s", [1e9, 1e-9, 1e300], seed, share))).culprits
        == ()
    )


@FEW
@given(st.integers(0, 999), st.integers(0, 400))
def test_order_and_repetition_do_not_matter(seed: int, repeated: int) -> None:
    draw = np.random.default_rng(seed)
    rows = SICK["step"].size
    order = draw.permutation(np.concatenate([np.arange(rows), draw.integers(0, rows, repeated)]))
    assert judge_stragglers(
        build_step_trace({name: values[order] for name, values in SICK.items()})
    ) == judge_stragglers(build_step_trace(SICK))


def test_a_repeated_report_that_is_slow_makes_nobody_slow() -> None:
    again = {name: values[HEALTHY["rank"] == 5] for name, values in HEALTHY.items()}
    again["compute_s"] = again["compute_s"] * 3
    both = {name: np.concatenate([values, again[name]]) for name, values in HEALTHY.items()}
    assert judge_stragglers(build_step_trace(both)).culprits == ()


@FEW
@given(st.integers(0, 59))
def test_nothing_after_a_step_is_known_at_it(step: int) -> None:
    known = {name: values[SICK["step"] <= step] for name, values in SICK.items()}
    assert judge_stragglers(build_step_trace(SICK).until(step)) == judge_stragglers(build_step_trace(known))


@FEW
@given(st.integers(0, 999), st.floats(0, 0.25))
def test_missing_reports_hide_no_culprit_and_make_none(seed: int, share: float) -> None:
    heard = np.random.default_rng(seed).random(SICK["step"].size) >= share
    found = judge_stragglers(build_step_trace({name: values[heard] for name, values in SICK.items()}))
    assert [culprit.rank for culprit in found.culprits] == [3]


@FEW
@given(
    st.integers(0, 6), st.integers(0, 6), st.lists(st.one_of(NOTHING, st.floats(), st.just(2.0)), max_size=36),
    st.sampled_from(["compute_s", "step_s"]),
)  # fmt: skip
def test_tiny_and_odd_traces_do_not_crash(steps: int, ranks: int, values: list[float], name: str) -> None:
    cells = np.resize(np.array(values or [1.0]), steps * ranks)
    rows: Columns = {
        "step": np.repeat(np.arange(steps), ranks),
        "rank": np.tile(np.arange(ranks), steps),
        name: cells,
    }
    assert judge_stragglers(build_step_trace(rows)).culprits == ()


@FEW
@given(st.lists(st.lists(st.one_of(st.just(np.nan), st.floats(-9, 9)), min_size=6, max_size=6), min_size=1, max_size=5))
def test_medians_are_those_of_the_definition(cells: list[list[float]]) -> None:
    values = np.array(cells)
    for row, centre, beside in zip(values, nan_median(values, 1), excess_over_others(values, 4), strict=True):
        known = row[~np.isnan(row)]
        assert np.isnan(centre) if not known.size else centre == pytest.approx(np.median(known))
        for column, value in enumerate(row):
            others = np.delete(row, column)
            others = others[~np.isnan(others)]
            if known.size < 4 or np.isnan(value):
                assert np.isnan(beside[column])
            else:
                assert beside[column] == pytest.approx(value - np.median(others), abs=1e-12)


def test_bounds_grow_with_looks_and_with_what_is_not_known() -> None:
    assert critical_spreads(0.01, 1, 10**9) == pytest.approx(2.326, abs=0.001)
    assert critical_spreads(0.01, 1000, 10**9) == pytest.approx(4.265, abs=0.001)
    assert critical_spreads(0.01, 1, 27) == pytest.approx(2.764, rel=0.01)  # Student's t with 27 × 0.37 = 10 degrees
    assert binomial_tail(3, 3, 0.5) == pytest.approx(0.125)
    assert binomial_tail(2, 3, 0.5) == pytest.approx(0.5)

"""A pass that selects middle values and takes columns as views says what sorting, copying and loops say, to the last bit."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.traces import Columns, Fault, Job, build_columns
from remediator.detection.stragglers import link_attribution, node_comparison, robust_statistics, sequence_length_model
from remediator.detection.stragglers.node_comparison import NodeMeans
from remediator.detection.stragglers.peer_comparison import PeerComparison
from remediator.detection.stragglers.robust_statistics import LONG_ROW
from remediator.detection.stragglers.step_trace import UNKNOWN, Floats, Ints, StepTrace, as_slice, build_step_trace
from remediator.detection.stragglers.straggler_judgement import judge_stragglers, rank_slowness

PACKAGE = "remediator.detection.stragglers."


def nan_median(values: Floats, axis: int) -> Floats:
    if not values.shape[axis]:
        return np.full(np.delete(values.shape, axis), np.nan)
    ordered, known = np.sort(values, axis=axis), np.sum(~np.isnan(values), axis=axis, keepdims=True)
    low, high = (
        np.take_along_axis(ordered, np.clip(place, 0, values.shape[axis] - 1), axis)
        for place in ((known - 1) // 2, known // 2)
    )
    return np.asarray(np.squeeze(np.where(known > 0, (low + high) / 2, np.nan), axis=axis))


def median_of(known: Floats) -> float:
    return float(np.median(known)) if known.size else np.nan


def known_median(values: Floats) -> float:
    return float(np.median(values[~np.isnan(values)])) if not np.isnan(values).all() else np.nan


def quantiles_of(known: Floats, shares: tuple[float, ...]) -> list[float]:
    return np.asarray(np.quantile(known, shares)).tolist()


def excess_over_others(values: Floats, fewest: int) -> Floats:
    ordered = np.sort(values, axis=1)
    known = np.sum(~np.isnan(values), axis=1, keepdims=True)
    last = values.shape[1] - 1
    others = np.zeros_like(values)
    for place in ((known - 2) // 2, (known - 1) // 2):
        here = np.take_along_axis(ordered, np.clip(place, 0, last), 1)
        after = np.take_along_axis(ordered, np.clip(place + 1, 0, last), 1)
        others += np.where(values > here, here, after) / 2
    return np.where(known >= fewest, values - others, np.nan)


def _robust_least_squares(terms: Floats, seconds: Floats) -> Floats:
    relative, scale = np.ones(seconds.size), seconds
    weights: Floats = np.zeros(terms.shape[1])
    for _ in range(sequence_length_model.ROUNDS):
        by = (np.sqrt(relative) / scale)[:, None]
        weights = np.linalg.lstsq(terms * by, seconds * by[:, 0], rcond=None)[0]
        scale = np.maximum(terms @ weights, 0.1 * float(np.median(seconds)))
        wrong = np.log(seconds / scale)
        far = sequence_length_model.OUTLIER_SPREADS * max(robust_statistics.robust_spread(wrong), 1e-9)
        relative = np.minimum(1.0, far / np.maximum(np.abs(wrong - np.median(wrong)), 1e-12))
    return weights


def node_means(trace: StepTrace, compared: PeerComparison) -> NodeMeans:
    places: dict[tuple[int, int], list[int]] = {}
    for column, (group, node) in enumerate(zip(compared.group.tolist(), trace.codes["node"].tolist(), strict=True)):
        if group >= 0 and node != UNKNOWN:
            places.setdefault((group, node), []).append(column)
    chosen = {place: columns for place, columns in sorted(places.items()) if len(columns) > 1}
    slow = np.full((trace.steps.size, len(chosen)), np.nan)
    for unit, columns in enumerate(chosen.values()):
        slow[:, unit] = node_comparison._unit_means(compared.slow[:, columns], np.zeros(1, dtype=np.int64))[:, 0]
    group = np.array([number for number, _ in chosen], dtype=np.int64)
    for number in np.unique(group):
        units = np.flatnonzero(group == number)
        slow[:, units] = excess_over_others(slow[:, units], 2) if units.size > 1 else np.nan
    return NodeMeans([np.array(columns) for columns in chosen.values()], group, slow)


def communication_rings(trace: StepTrace) -> list[Ints]:
    found = []
    for axis, fixed in link_attribution.AXES.items():
        if (trace.places[axis] != UNKNOWN).all() and np.unique(trace.places[axis]).size >= 2:
            places = list(zip(*(trace.places[name].tolist() for name in fixed), strict=True))
            numbers = {place: number for number, place in enumerate(sorted(set(places)))}
            found.append(np.array([numbers[place] for place in places]))
    return found or [np.zeros(trace.ranks.size, dtype=np.int64)]


def _least_of_rings(values: Floats, order: Ints, starts: Ints) -> Floats:
    return np.stack([np.fmin.reduce(values[:, ring], axis=1) for ring in np.split(order, starts[1:])], axis=1)


def same_columns(columns: Ints) -> Ints:
    return columns


REFERENCES: dict[str, Any] = {
    each.__name__: each
    for each in (
        nan_median, median_of, known_median, quantiles_of, excess_over_others, _robust_least_squares, node_means,
        communication_rings, _least_of_rings,
    )
} | {"as_slice": same_columns}  # fmt: skip


def straightforward(trace: StepTrace) -> tuple[str, Floats]:
    with pytest.MonkeyPatch.context() as patched:
        for name, module in list(sys.modules.items()):
            for function, reference in REFERENCES.items():
                if name.startswith(PACKAGE) and hasattr(module, function):
                    patched.setattr(module, function, reference)
        return judged(trace)


def judged(trace: StepTrace) -> tuple[str, Floats]:
    return repr(judge_stragglers(trace)), rank_slowness(trace)[0]


def with_holes(rows: Columns, share: float, seed: int) -> Columns:
    kept = np.random.default_rng(seed).random(len(rows["step"])) >= share
    kept[: len(rows["step"]) // 20] = True
    return {name: values[kept] for name, values in rows.items()}


JOBS = st.builds(
    Job,
    dp=st.sampled_from([3, 4, 9, 64, LONG_ROW, LONG_ROW + 1]),
    pp=st.sampled_from([1, 3]),
    steps=st.sampled_from([20, 35]),
    packed=st.sampled_from([0.0, 0.2]),
    noise=st.sampled_from([0.005, 0.05]),
    node_ranks=st.sampled_from([1, 6, 8]),
    slow_product=st.sampled_from([0.0, 0.25]),
    faults=st.sampled_from([
        (),
        (Fault(2, 0.3, 12),),
        tuple(Fault(rank, 0.2, 15) for rank in range(8)),
        (Fault(1, 0.4, 5, course="flicker"),),
    ]),
)  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(job=JOBS, seed=st.integers(0, 99), tokens=st.booleans(), holes=st.sampled_from([0.0, 0.03, 0.3]))
def test_verdicts_of_random_jobs_are_those_of_straightforward_code(
    *, job: Job, seed: int, tokens: bool, holes: float
) -> None:
    job = job if job.ranks > 8 else Job(dp=9, steps=30)  # a fault must hit a rank that exists
    trace = build_step_trace(with_holes(build_columns(job, seed, tokens=tokens), holes, seed))
    (found, slow), (wanted, slow_wanted) = judged(trace), straightforward(trace)
    assert found == wanted
    np.testing.assert_array_equal(slow, slow_wanted)


@settings(max_examples=60, deadline=None)
@given(
    count=st.sampled_from([1, 2, 5, 8, LONG_ROW, LONG_ROW + 1]),
    holes=st.sampled_from([0.0, 0.4, 0.999]),
    fewest=st.integers(2, 4),
    seed=st.integers(0, 999),
)
def test_medians_quantiles_and_excesses_are_numpys(count: int, holes: float, fewest: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.normal(size=(6, count)).round(random.integers(1, 9))  # ties too
    known = values.reshape(-1).copy()
    values[random.random(values.shape) < holes] = np.nan
    np.testing.assert_array_equal(
        robust_statistics.excess_over_others(values, fewest), excess_over_others(values, fewest)
    )
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # rows without values
        for axis in (0, 1):
            np.testing.assert_array_equal(robust_statistics.nan_median(values, axis), np.nanmedian(values, axis))
        assert robust_statistics.known_median(values) == pytest.approx(np.nanmedian(values), rel=0, nan_ok=True)
    shares = (0.05, 0.5, 0.8, 0.95, 1.0, 0.0)
    assert robust_statistics.quantiles_of(known, shares) == quantiles_of(known, shares)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize(("dp", "pp", "tp"), [(4, 3, 1), (2, 3, 4), (9, 2, 2), (3, 8, 2)])
def test_rings_and_their_least_times_are_those_of_a_loop(dp: int, pp: int, tp: int, missing: int) -> None:
    job = Job(dp=dp, pp=pp, tp=tp, steps=15)
    rows = build_columns(job, 0)
    kept = rows["rank"].astype(int) < job.ranks - missing  # one rank less: rings of unequal length
    trace = build_step_trace({name: values[kept] for name, values in rows.items()})
    values = trace.cells["comm_s"].copy()
    values[np.random.default_rng(0).random(values.shape) < 0.3] = np.nan
    rings = link_attribution.communication_rings(trace)
    assert [each.tolist() for each in rings] == [each.tolist() for each in communication_rings(trace)]
    for number in rings:
        order = np.argsort(number, kind="stable")
        starts = np.flatnonzero(np.diff(number[order], prepend=-1))
        found, wanted = (each(values, order, starts) for each in (link_attribution._least_of_rings, _least_of_rings))
        np.testing.assert_array_equal(found, wanted)


def test_evenly_spaced_columns_are_a_view() -> None:
    cells = np.arange(40.0).reshape(2, 20)
    for columns in ([], [3], [1, 4, 7], [0, 1], [2, 3, 5], [5, 3], [4, 4]):
        numbers = np.array(columns, dtype=np.int64)
        np.testing.assert_array_equal(cells[:, as_slice(numbers)], cells[:, numbers])
    assert as_slice(np.array([1, 4, 7])) == slice(1, 8, 3)

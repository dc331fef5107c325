"""Two documents beside each other, and one beside the fleet."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.fleet_baseline import Baseline
from preflight.expectations.run_comparison import compare_runs
from preflight.results import Figure
from tests.unit.preflight.expect.runs import document


def test_only_what_noise_does_not_explain_is_beyond() -> None:
    rows = compare_runs(document("n1", [100.0] * 8), document("n1", [100.0] * 6 + [98.0, 90.0], at=2))
    assert [row.beyond for row in rows] == [False] * 7 + [True]
    assert (rows[7].difference, rows[7].worse) == (90 / 100 - 1, True)


def test_wide_noise_explains_more() -> None:
    wide = [100.0, 90, 110, 95, 105, 92, 108, 100]
    rows = compare_runs(document("n1", wide), document("n1", [value * 0.92 for value in wide], at=2))
    assert not any(row.beyond for row in rows)


def test_better_is_beyond_but_not_worse() -> None:
    late = Figure(name="latency", value=1.0, unit="us")
    (faster,) = compare_runs(document("a", [100.0]), document("b", [120.0]))
    (later,) = compare_runs(document("a", [100.0], figure=late), document("b", [120.0], figure=late))
    assert (faster.beyond, faster.worse) == (True, False)
    assert (later.beyond, later.worse) == (True, True)


def test_what_only_one_side_has_stands_alone() -> None:
    rows = compare_runs(document("n1", [100.0]), document("n1", [100.0, 101.0]))
    assert [(row.device, row.a, row.b, row.difference) for row in rows] == [
        ("cuda:0", 100.0, 100.0, 0.0),
        ("cuda:1", None, 101.0, None),
    ]


def test_beside_the_fleet_every_device_has_its_level() -> None:
    fleet = learn_baseline(document(f"n{i}", [100.0 + i] * 2) for i in range(5))
    rows = compare_runs(fleet, document("n9", [102.0, 80.0]))
    assert [(row.a, row.b, row.worse) for row in rows] == [(102.0, 102.0, False), (102.0, 80.0, True)]
    (unknown,) = compare_runs(Baseline(), document("n9", [102.0]))
    assert (unknown.a, unknown.b, unknown.beyond) == (None, 102.0, False)


def test_the_fleet_speaks_by_our_software_or_else_by_what_it_has() -> None:
    old = [document(f"n{i}", [100.0], software={"driver": "570"}) for i in range(5)]
    new = [document(f"m{i}", [90.0], software={"driver": "580"}) for i in range(3)]
    mine = document("n9", [90.0], software={"driver": "580"})
    assert [row.a for row in compare_runs(learn_baseline(old + new), mine)] == [90.0]
    assert [row.a for row in compare_runs(learn_baseline(old + new[:2]), mine)] == [100.0]


rates = st.lists(st.floats(min_value=1.0, max_value=1000.0), min_size=1, max_size=8)


@given(rates)
def test_a_document_does_not_differ_from_itself(values: list[float]) -> None:
    rows = compare_runs(document("n", values), document("n", values))
    assert [row.difference for row in rows] == [0.0] * len(values)
    assert not any(row.beyond for row in rows)


@given(rates, rates)
def test_worse_one_way_is_never_worse_the_other_way(one: list[float], other: list[float]) -> None:
    there = {row.device for row in compare_runs(document("n", one), document("n", other)) if row.worse}
    back = {row.device for row in compare_runs(document("n", other), document("n", one)) if row.worse}
    assert not there & back


def test_where_scatter_is_unknown_a_tenth_is_no_change() -> None:
    (less,) = compare_runs(document("n", [100.0]), document("n", [91.0]))
    (much,) = compare_runs(document("n", [100.0]), document("n", [89.0]))
    assert (less.spread, less.worse, much.worse) == (None, False, True)


def test_the_worst_moment_makes_nothing_worse() -> None:
    tail = Figure(name="sync_p99", value=1.0, unit="us")
    (row,) = compare_runs(document("n", [1.0], figure=tail), document("n", [9.0], figure=tail))
    assert (row.beyond, row.worse) == (True, False)


def test_units_are_never_mixed() -> None:
    rows = compare_runs(
        document("n", [1.0], figure=Figure(name="rate", value=1.0, unit="TFLOP/s")),
        document("n", [1000.0], figure=Figure(name="rate", value=1.0, unit="GFLOP/s")),
    )
    assert [row.difference for row in rows] == [None, None]


def test_a_fleet_of_other_software_makes_nothing_worse() -> None:
    fleet = learn_baseline(document(f"n{i}", [100.0 + i] * 2, software={"driver": "570"}) for i in range(9))
    (row,) = compare_runs(fleet, document("m", [50.0], software={"driver": "580"}))
    assert (row.beyond, row.worse) == (True, False)


@given(st.integers(0, 200))
def test_two_runs_of_one_noisy_node_are_seldom_worse(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - noise
    one, other = ([dice.gauss(100, 2) for _ in range(8)] for _ in range(2))
    rows = compare_runs(document("n", one), document("n", other))
    assert sum(row.worse for row in rows) <= 1

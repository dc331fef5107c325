"""The views that text and HTML share, and where charts put things."""

from __future__ import annotations

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.report.figure_charts import LONG, SHADES, build_axis, choose_heat_class, draw_track
from preflight.report.pair_matrices import NAMES_MAX, build_pair_matrices, exclude_pair_figures
from preflight.report.result_tables import (
    DeviceReading,
    FigureGroup,
    build_outcome_rows,
    find_tightest_bound,
    group_figures,
    order_device_names,
)
from preflight.results import Document, Expectation, Figure, Location, Outcome, Result, Source

FINITE = st.floats(-1e9, 1e9)


def sku(**bounds: float) -> Expectation:
    return Expectation(source=Source.SKU, words="", **bounds)


def test_devices_stand_in_the_order_of_their_numbers_the_node_last() -> None:
    names = ["node", "cuda:10", "cuda:2", "", "mlx5_0", "cuda:2"]
    assert order_device_names(names) == ("mlx5_0", "cuda:2", "cuda:10", "node")


def test_a_row_shows_the_worst_of_several_results_of_one_device() -> None:
    results = [
        Result(test="t", outcome=Outcome.PASS, device="cuda:0", seconds=1.0),
        Result(test="t", outcome=Outcome.HANG, device="cuda:0", seconds=9.0),
        Result(test="t", outcome=Outcome.PASS, device="cuda:0", seconds=2.0),
        Result(test="t", outcome=Outcome.NOT_APPLICABLE, device="cuda:1"),
    ]
    (row,) = build_outcome_rows(results)
    assert {name: cell.outcome for name, cell in row.cells.items()} == {
        "cuda:0": Outcome.HANG,
        "cuda:1": Outcome.NOT_APPLICABLE,
    }
    assert row.worst is Outcome.HANG
    assert row.seconds == 9.0


def test_figures_compare_within_test_name_setting_and_unit_only() -> None:
    figures = [("rate", "a", "GB/s"), ("rate", "b", "GB/s"), ("rate", "a", "MB/s"), ("other", "a", "GB/s")]
    results = [
        Result(test=test, outcome=Outcome.PASS, device=device,
               figures=tuple(Figure(name=n, value=1.0, setting=s, unit=u) for n, s, u in figures))
        for test in ("one", "two") for device in ("cuda:0", "cuda:1")
    ]  # fmt: skip
    found = group_figures(results)
    assert len(found) == 8
    assert all([reading.device for reading in group.readings] == ["cuda:0", "cuda:1"] for group in found)


def test_the_worst_device_of_a_group_is_the_one_with_the_least_margin(failing: Document) -> None:
    found = {group.name: group for group in group_figures(failing.results)}
    assert found["d2h_rate"].worst.device == "cuda:3"
    assert found["d2h_rate"].fails
    hot = found["temperature_max"]
    assert not hot.remarkable


def test_the_tightest_bound_is_the_one_nearest_to_failing() -> None:
    loose, near, soft = sku(at_least=10.0), sku(at_most=101.0), Expectation(source=Source.FLEET, words="", at_least=200.0, fails=False)  # fmt: skip
    assert find_tightest_bound(Figure(name="x", value=100.0, unit="", expected=(soft, loose, near))) is near
    assert find_tightest_bound(Figure(name="x", value=100.0, unit="", expected=(soft,))) is soft
    assert find_tightest_bound(Figure(name="x", value=100.0, unit="")) is None


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(FINITE, st.none() | FINITE, st.none() | FINITE), min_size=1, max_size=8))
def test_every_value_and_bound_of_a_group_lies_on_its_axis(
    drawn: list[tuple[float, float | None, float | None]],
) -> None:
    readings = tuple(
        DeviceReading(f"cuda:{n}", Figure(name="x", value=value, unit="", expected=(Expectation(source=Source.SKU, words="", at_least=low, at_most=high),)))
        for n, (value, low, high) in enumerate(drawn)
    )  # fmt: skip
    on = build_axis(FigureGroup("t", "x", "", "", readings))
    assert on.low < on.high
    for value in (v for each in drawn for v in each if v is not None):
        assert on.low <= value <= on.high
        assert 0 <= on.at(value) <= LONG
    assert all("nan" not in draw_track(reading, on, "GB/s") for reading in readings)


def test_what_is_no_number_still_has_a_track() -> None:
    reading = DeviceReading("cuda:0", Figure(name="x", value=math.inf, unit="", expected=(sku(at_least=1.0),)))
    assert "<svg" in draw_track(reading, build_axis(FigureGroup("t", "x", "", "", (reading,))), "")


def test_small_differences_look_small() -> None:
    readings = tuple(DeviceReading(f"cuda:{n}", Figure(name="x", value=1000.0 + n, unit="")) for n in range(8))
    on = build_axis(FigureGroup("t", "x", "", "", readings))
    assert on.at(1007.0) - on.at(1000.0) < LONG / 20


def pair(one: str, value: float, setting: str, peer: str = "") -> Result:
    figure = Figure(name="pair_rate", value=value, unit="GB/s", setting=setting)
    return Result(test="peer_links", outcome=Outcome.PASS, device=one, figures=(figure,), locations=(Location(gpu=one, peer=peer),))  # fmt: skip


def test_a_pair_is_named_by_its_setting_in_any_order() -> None:
    named = [
        pair("cuda:0", 1.0, "nvlink, to cuda:1"),
        pair("cuda:0", 2.0, "cuda:0 to cuda:2, nvlink"),
        pair("cuda:0", 3.0, "nvlink, cuda:2 to cuda:0"),
    ]
    (found,) = build_pair_matrices(named)
    assert found.setting == "nvlink"
    assert found.names == ("cuda:0", "cuda:1", "cuda:2")
    ends = [("cuda:0", "cuda:1"), ("cuda:0", "cuda:2"), ("cuda:2", "cuda:0")]
    assert [found.value(*pair) for pair in ends] == [1.0, 2.0, 3.0]
    assert found.value("cuda:1", "cuda:2") is None


def test_a_median_over_pairs_is_no_pair_wherever_the_fault_sits() -> None:
    results = [pair("cuda:0", 1.0, "nvlink", "cuda:1"), pair("cuda:1", 2.0, "nvlink, cuda:0 to cuda:1")]
    matrices = build_pair_matrices(results)
    assert [matrix.cells.keys() for matrix in matrices] == [{("cuda:0", "cuda:1")}]
    assert [group.setting for group in exclude_pair_figures(group_figures(results), matrices)] == ["nvlink"]


def test_the_slowest_pair_is_the_palest_and_noise_does_not_look_like_it() -> None:
    (found,) = build_pair_matrices(
        [pair("cuda:0", value, f"nvlink, to cuda:{n}") for n, value in enumerate((400.0, 396.0, 200.0), 1)]
    )
    assert choose_heat_class(found, 400.0) == f"h{SHADES}"
    assert choose_heat_class(found, 200.0) == "h0"
    assert choose_heat_class(found, 396.0) == f"h{SHADES}"
    assert choose_heat_class(found, None) == choose_heat_class(found, math.nan) == "none"


def test_too_many_names_make_no_matrix() -> None:
    """A document can name thousands, and each cell would be drawn."""
    figures = tuple(
        Figure(name="pair_rate", value=1.0, unit="GB/s", setting=f"nvlink, a{n} to b{n}") for n in range(NAMES_MAX)
    )
    result = Result(test="peer_links", outcome=Outcome.PASS, device="cuda:0", figures=figures)
    assert build_pair_matrices([result]) == ()
    assert len(build_pair_matrices([msgspec.structs.replace(result, figures=figures[: NAMES_MAX // 2])])) == 1

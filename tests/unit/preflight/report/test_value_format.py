from __future__ import annotations

import doctest
import math
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.report import text_columns, timestamps, value_format
from preflight.results import Expectation, Figure, Source
from vocabulary.text import duration_format
from vocabulary.text.duration_format import format_duration


@pytest.mark.parametrize(
    "module", [text_columns, timestamps, duration_format, value_format], ids=lambda module: module.__name__
)
def test_the_examples_are_true(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_what_is_clean_cannot_steer_anything(text: str) -> None:
    assert value_format.escape_text(text).isprintable()
    assert text.isprintable() == (value_format.escape_text(text) == text)


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf]))
def test_every_float_can_be_told(value: float) -> None:
    assert timestamps.format_moment(value).isprintable()
    assert timestamps.format_iso_timestamp(value).isprintable()
    assert format_duration(value).isprintable()
    assert value_format.format_margin(value).isprintable()
    told = float(value_format.format_number(value))
    assert math.isnan(value) if math.isnan(told) else math.isclose(told, value, rel_tol=6e-3)


@settings(deadline=None, max_examples=50)
@given(st.floats(1, 1e6), st.floats(1, 1e6), st.booleans())
def test_a_bound_is_missed_on_its_own_side_only(value: float, at: float, lower: bool) -> None:  # noqa: FBT001 - drawn
    bound = Expectation(source=Source.SKU, words="", **{"at_least" if lower else "at_most": at})
    figure = Figure(name="x", value=value, unit="", expected=(bound,))
    assert bool(value_format.list_missed_bounds(figure)) is (value < at if lower else value > at)


def test_what_is_no_number_meets_no_bound() -> None:
    bounds = tuple(Expectation(source=Source.SKU, words="", **{side: 1.0}) for side in ("at_least", "at_most"))
    assert value_format.list_missed_bounds(Figure(name="x", value=math.nan, unit="", expected=bounds)) == bounds

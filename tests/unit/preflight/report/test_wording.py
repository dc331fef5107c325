from __future__ import annotations

import doctest
import math
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.report import columns, dates, wording
from preflight.results import Expectation, Figure, Source
from vocabulary import spans
from vocabulary.spans import length


@pytest.mark.parametrize("module", [columns, dates, spans, wording], ids=lambda module: module.__name__)
def test_the_examples_are_true(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


@settings(deadline=None, max_examples=50)
@given(st.text())
def test_what_is_clean_cannot_steer_anything(text: str) -> None:
    assert wording.clean(text).isprintable()
    assert text.isprintable() == (wording.clean(text) == text)


@settings(deadline=None, max_examples=50)
@given(st.floats(-1e300, 1e300) | st.sampled_from([math.nan, math.inf, -math.inf]))
def test_every_float_can_be_told(value: float) -> None:
    assert dates.moment(value).isprintable()
    assert dates.timestamp(value).isprintable()
    assert length(value).isprintable()
    assert wording.share(value).isprintable()
    told = float(wording.number(value))
    assert math.isnan(value) if math.isnan(told) else math.isclose(told, value, rel_tol=6e-3)


@settings(deadline=None, max_examples=50)
@given(st.floats(1, 1e6), st.floats(1, 1e6), st.booleans())
def test_a_bound_is_missed_on_its_own_side_only(value: float, at: float, lower: bool) -> None:  # noqa: FBT001 - drawn
    bound = Expectation(source=Source.SKU, words="", **{"at_least" if lower else "at_most": at})
    figure = Figure(name="x", value=value, unit="", expected=(bound,))
    assert bool(wording.missed(figure)) is (value < at if lower else value > at)


def test_what_is_no_number_meets_no_bound() -> None:
    bounds = tuple(Expectation(source=Source.SKU, words="", **{side: 1.0}) for side in ("at_least", "at_most"))
    assert wording.missed(Figure(name="x", value=math.nan, unit="", expected=bounds)) == bounds

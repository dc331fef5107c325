from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.execution.finite_numbers import replace_non_finite
from preflight.results import Figure, Outcome, Result

FIGURES = st.builds(Figure, name=st.sampled_from(["a", "b"]), value=st.floats(), unit=st.just("GB/s"))


@given(st.builds(Result, test=st.just("t"), outcome=st.sampled_from(Outcome), figures=st.lists(FIGURES, max_size=3).map(tuple),
                 evidence=st.dictionaries(st.text(max_size=2), st.floats() | st.integers(-9, 9) | st.booleans() | st.text(max_size=2), max_size=3)))  # fmt: skip
def test_whatever_was_measured_arrives_and_no_number_passes(result: Result) -> None:
    made = replace_non_finite(result)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Result) == made
    whole = all(math.isfinite(figure.value) for figure in result.figures)
    assert made.figures == tuple(figure for figure in result.figures if math.isfinite(figure.value))
    expected = Outcome.ERROR if result.outcome is Outcome.PASS and not whole else result.outcome
    assert made.outcome is expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_figure_that_is_no_number_is_named(value: float) -> None:
    figure = Figure(name="copy_rate", value=value, unit="GB/s")
    passed = replace_non_finite(Result(test="t", outcome=Outcome.PASS, figures=(figure,)))
    assert passed.reason == f"copy_rate is {value}, not a number: the test measured nothing"
    failed = replace_non_finite(Result(test="t", outcome=Outcome.FAIL, reason="wrong words", figures=(figure,)))
    assert (failed.outcome, failed.reason) == (Outcome.FAIL, "wrong words")
    assert "copy_rate" in failed.remarks[0]


def test_what_is_all_numbers_stays_itself() -> None:
    result = Result(test="t", outcome=Outcome.PASS, evidence={"bytes": 1, "share": 0.5})
    assert replace_non_finite(result) is result

"""Numbers as people say them: a chosen time keeps every second of it, one thing is not several."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.model.plan_steps import Step, Verb
from vocabulary.text.duration_format import format_period
from vocabulary.text.plurals import format_count

SIZES = {"d": 86400, "h": 3600, "min": 60, "s": 1}


@given(st.integers(0, 10**9))
def test_a_chosen_time_loses_nothing(seconds: int) -> None:
    words = format_period(seconds).split()
    assert sum(int(n) * SIZES[unit] for n, unit in zip(words[::2], words[1::2], strict=True)) == seconds
    assert "0" not in words[::2] or seconds == 0


@given(st.floats())
def test_any_number_has_words(seconds: float) -> None:
    assert format_period(seconds).isprintable()


def test_a_long_time_is_not_told_in_powers_of_ten() -> None:
    assert [format_period(s) for s in (2_592_000, 86_400, 600, 59.5, 0.25)] == [
        "30 d",
        "1 d",
        "10 min",
        "59.5 s",
        "0.25 s",
    ]


def test_one_is_not_several() -> None:
    assert [format_count(n, "rank") for n in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
    assert format_count(1, "node is", "nodes are") == "1 node is"


@pytest.mark.parametrize(
    ("how", "says"), [("0", "until it clears"), ("2.592e+06", "quiet for 30 d"), ("600", "quiet for 10 min")]
)
def test_a_step_that_watches_says_until_when(how: str, says: str) -> None:
    assert str(Step(Verb.WATCH, how)).startswith("watch: ")
    assert str(Step(Verb.WATCH, how)).endswith(says)

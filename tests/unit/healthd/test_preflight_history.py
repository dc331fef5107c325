"""What the exporter is told of preflights: by orders and by people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.preflight_reports.preflight_history import FIGURES_MAX, LastPreflight, PreflightFigure, PreflightHistory
from healthd.samples.preflight import LEVELS, VERDICTS, PreflightSample
from vocabulary.order import OrderState, OrderUpdate

WORDS = st.text(max_size=20)


def answer(state: OrderState, **data: str | float) -> OrderUpdate:
    return OrderUpdate(id="o1", state=state, at=100.0, detail="", data=data)


def test_the_last_of_each_level_is_kept_and_all_are_counted() -> None:
    seen = PreflightHistory()
    seen.told(PreflightSample("fail", "gate", started_at=90.0), 95.0)
    seen.answered("gate", answer(OrderState.SUCCEEDED, verdict="pass", seconds=8.5))
    seen.answered("gate", answer(OrderState.SUCCEEDED, verdict="pass"))
    assert seen.seen.last == (LastPreflight("gate", "pass", 100.0),)
    assert seen.seen.ended == (("gate", "fail", "told", 1), ("gate", "pass", "order", 2))


@pytest.mark.parametrize(
    ("state", "word", "verdict"),
    [
        (OrderState.SUCCEEDED, "pass", "pass"),
        (OrderState.FAILED, "pass", "inconclusive"),  # a part of the tests, or an injected fault: it proves nothing
        (OrderState.FAILED, "fail", "fail"),
        (OrderState.FAILED, "misconfigured", "misconfigured"),
        (OrderState.FAILED, "", "inconclusive"),
    ],
)
def test_only_what_counts_as_a_pass_is_one(state: OrderState, word: str, verdict: str) -> None:
    seen = PreflightHistory()
    seen.answered("gate", answer(state, verdict=word))
    assert seen.seen.last[0].verdict == verdict


def test_figures_are_named_with_unit_and_setting() -> None:
    seen = PreflightHistory()
    seen.answered(
        "gate", answer(OrderState.SUCCEEDED, **{"figure gemm TFLOP/s bf16 8192": 612.5, "figure copy GB/s": 12})
    )
    assert seen.seen.last[0].figures == (
        PreflightFigure("gemm", "TFLOP/s", "bf16 8192", 612.5),
        PreflightFigure("copy", "GB/s", "", 12.0),
    )


@given(
    st.sampled_from(OrderState),
    WORDS,
    st.dictionaries(
        WORDS | WORDS.map("figure ".__add__), WORDS | st.floats() | st.booleans() | st.integers(), max_size=60
    ),
)
def test_whatever_a_program_answered_it_stays_within_the_known_words(
    state: OrderState, level: str, data: dict[str, str | float | bool]
) -> None:
    seen = PreflightHistory()
    seen.answered(level, OrderUpdate(id="o1", state=state, at=100.0, detail="", data=data))
    last = seen.seen.last[0]
    assert last.level in (*LEVELS, "other")
    assert last.verdict in VERDICTS
    assert len(last.figures) <= FIGURES_MAX
    assert all(isinstance(figure.value, float) for figure in last.figures)

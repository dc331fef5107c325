from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from healthd.findings.hysteresis import POINTS, Dwell, Growth, judge_band


def test_nothing_is_known_until_it_has_lasted() -> None:
    dwell = Dwell(10, 5)
    assert [dwell.judge("a", bad=True, at=at) for at in (0, 9, 10)] == [None, None, True]
    assert [dwell.judge("a", bad=False, at=at) for at in (11, 15, 16)] == [None, None, False]


def test_a_short_change_does_not_count_and_an_unknown_reading_begins_the_waiting_anew() -> None:
    dwell = Dwell(10, 5)
    assert [dwell.judge("a", bad=bad, at=at) for bad, at in ((False, 0), (False, 5), (True, 6), (False, 15))] == [
        None,
        False,
        None,
        False,
    ]
    assert [dwell.judge("a", bad=bad, at=at) for bad, at in ((True, 20), (None, 29), (True, 30), (True, 40))] == [
        None,
        None,
        None,
        True,
    ]


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(0, 20)), max_size=40))
def test_it_never_says_the_opposite_of_the_reading(steps: list[tuple[bool | None, float]]) -> None:
    dwell, at = Dwell(10, 5), 0.0
    for bad, pause in steps:
        at += pause
        assert dwell.judge("a", bad=bad, at=at) in (None, bad)


def test_growth_within_the_window() -> None:
    growth = Growth(60)
    assert [growth.add("a", value, at) for value, at in ((100, 0), (103, 10), (103, 50), (104, 80))] == [None, 3, 3, 1]
    assert growth.add("a", None, 90) is None
    assert growth.add("a", 2, 100) == 0, "the counter was reset"
    assert growth.add("a", 5, 110) == 3


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 50)), min_size=2, max_size=60))
def test_growth_is_never_negative_and_its_memory_is_bounded(steps: list[tuple[int, float]]) -> None:
    growth, at = Growth(60), 0.0
    for value, pause in steps:
        at += pause + 1
        assert (growth.add("a", value, at) or 0) >= 0
    assert len(growth._points["a"]) <= 62


def test_readings_that_come_fast_take_no_more_room_and_lose_no_growth() -> None:
    growth = Growth(60)
    grown = [growth.add("a", second, second) for second in range(600)]
    assert grown[-1] is not None
    assert 60 <= grown[-1] <= 60 + 60 / POINTS + 1
    assert len(growth._points["a"]) <= 2 * POINTS + 2


def test_a_value_at_the_edge_is_neither() -> None:
    assert [judge_band(value, bad=3, good=8) for value in (2, 3, 5, 8, 9, None)] == [
        True,
        True,
        None,
        False,
        False,
        None,
    ]
    assert [judge_band(value, bad=80, good=70) for value in (81, 80, 75, 70, 10)] == [True, True, None, False, False]

"""What a verdict needs before anything is done: a second witness, and arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.detect.stragglers.confirm import Confirmed, Signals, confirm
from remediator.detect.stragglers.lasting import lasting
from remediator.detect.stragglers.verdict import Culprit, Kind, Verdict, nobody
from remediator.detect.stragglers.worth import Level, level, worth_ejecting

CULPRIT = Culprit(3, "n0", 0.15)
GPU = Verdict(Kind.GPU, (CULPRIT,), 30, 0.9, ())
LINK = Verdict(Kind.LINK, (CULPRIT,), 30, 0.9, ())


@pytest.mark.parametrize(
    ("signals", "answer"),
    [
        (Signals(), Confirmed.UNKNOWN),
        (Signals(sm_clock=0.8), Confirmed.YES),
        (Signals(sm_clock=0.8, activity=0.5), Confirmed.UNKNOWN),  # it waits: a victim's clock falls, too
        (Signals(throttled=0.6), Confirmed.YES),
        (Signals(xids=(79,)), Confirmed.YES),
        (Signals(xids=(13, 31, 43, 45)), Confirmed.UNKNOWN),  # a user's program causes these
        (Signals(pcie_narrow=True), Confirmed.YES),
        (Signals(probe_gemm=0.85), Confirmed.YES),
        (Signals(probe_gemm=0.99), Confirmed.NO),
        (Signals(probe_gemm=0.99, throttled=0.6), Confirmed.UNKNOWN),
        (Signals(probe_gemm=math.nan, throttled=0.6), Confirmed.YES),
        (Signals(link_errors=1e6), Confirmed.UNKNOWN),  # says nothing of a slow GPU
    ],
)
def test_a_second_witness(signals: Signals, answer: Confirmed) -> None:
    assert confirm(GPU, CULPRIT, signals).confirmed is answer


def test_what_is_not_confirmed_orders_a_test() -> None:
    assert confirm(GPU, CULPRIT, Signals()).test == ("gemm", "point_to_point")
    assert confirm(LINK, CULPRIT, Signals()).test == ("point_to_point",)
    assert confirm(LINK, CULPRIT, Signals(link_errors=1e6)).confirmed is Confirmed.YES
    assert confirm(nobody(0.9), CULPRIT, Signals(xids=(79,))).confirmed is Confirmed.UNKNOWN


@pytest.mark.parametrize(("slowdown", "minutes"), [(0.1, 110), (0.2, 60), (0.5, 30)])
def test_break_even_is_the_published_arithmetic(slowdown: float, minutes: float) -> None:
    sums = worth_ejecting(slowdown, 600, 0, 8)
    assert sums.break_even_s == pytest.approx(minutes * 60)


def test_what_has_lasted_will_last() -> None:
    assert not worth_ejecting(0.2, 600, 60, 8).worth
    assert worth_ejecting(0.2, 600, 3600, 8).worth
    assert worth_ejecting(0.2, 600, 60, 1024).worth  # big jobs' slowdowns last seven times as long


@given(st.floats(), st.floats(), st.floats())
def test_odd_numbers_never_eject(slowdown: float, cost: float, lasted: float) -> None:
    sums = worth_ejecting(slowdown, cost, lasted, 8)
    assert sums.worth in (True, False)
    if not slowdown > 0:
        assert not sums.worth


@pytest.mark.parametrize(
    ("slowdown", "lasted", "stalled", "answer"),
    [
        (0.02, 9999, False, Level.NOTHING),
        (0.07, 9999, False, Level.WATCH),
        (0.12, 60, False, Level.WATCH),
        (0.12, 900, False, Level.NEXT_CHECKPOINT),
        (0.2, 0, False, Level.NOW),
        (0.0, 0, True, Level.NOW),
        (math.nan, math.nan, False, Level.NOTHING),
    ],
)
def test_levels(slowdown: float, lasted: float, *, stalled: bool, answer: Level) -> None:
    assert level(slowdown, lasted, stalled=stalled) is answer


def test_one_pass_is_no_habit() -> None:
    other = Verdict(Kind.GPU, (Culprit(5, "n0", 0.3),), 7, 0.9, ())
    assert lasting([GPU, other, nobody(0.9)]) == ()
    assert [culprit.rank for culprit in lasting([GPU, other, GPU])] == [3]
    assert [culprit.rank for culprit in lasting([other, GPU, other, GPU, other])] == [5]
    assert lasting([GPU, GPU, nobody(0.9), nobody(0.9)]) == ()
    assert lasting([]) == ()

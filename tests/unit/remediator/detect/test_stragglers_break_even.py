"""What a verdict needs before anything is done: a second witness, and arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remediator.detection.stragglers.eject_break_even import EjectUrgency, compute_eject_break_even, eject_urgency
from remediator.detection.stragglers.repeat_culprits import repeat_culprits_of
from remediator.detection.stragglers.signal_confirmation import ConfirmationState, MachineSignals, confirm_culprit
from remediator.detection.stragglers.straggler_verdict import (
    Culprit,
    SlowdownKind,
    StragglerVerdict,
    no_culprit_verdict,
)

CULPRIT = Culprit(3, "n0", 0.15)
GPU = StragglerVerdict(SlowdownKind.GPU, (CULPRIT,), 30, 0.9, ())
LINK = StragglerVerdict(SlowdownKind.LINK, (CULPRIT,), 30, 0.9, ())


@pytest.mark.parametrize(
    ("signals", "answer"),
    [
        (MachineSignals(), ConfirmationState.UNKNOWN),
        (MachineSignals(sm_clock=0.8), ConfirmationState.YES),
        (
            MachineSignals(sm_clock=0.8, activity=0.5),
            ConfirmationState.UNKNOWN,
        ),  # it waits: a victim's clock falls, too
        (MachineSignals(throttled=0.6), ConfirmationState.YES),
        (MachineSignals(xids=(79,)), ConfirmationState.YES),
        (MachineSignals(xids=(13, 31, 43, 45)), ConfirmationState.UNKNOWN),  # a user's program causes these
        (MachineSignals(pcie_narrow=True), ConfirmationState.YES),
        (MachineSignals(probe_gemm=0.85), ConfirmationState.YES),
        (MachineSignals(probe_gemm=0.99), ConfirmationState.NO),
        (MachineSignals(probe_gemm=0.99, throttled=0.6), ConfirmationState.UNKNOWN),
        (MachineSignals(probe_gemm=math.nan, throttled=0.6), ConfirmationState.YES),
        (MachineSignals(link_errors=1e6), ConfirmationState.UNKNOWN),  # says nothing of a slow GPU
    ],
)
def test_a_second_witness(signals: MachineSignals, answer: ConfirmationState) -> None:
    assert confirm_culprit(GPU, CULPRIT, signals).confirmed is answer


def test_what_is_not_confirmed_orders_a_test() -> None:
    assert confirm_culprit(GPU, CULPRIT, MachineSignals()).test == ("gemm", "point_to_point")
    assert confirm_culprit(LINK, CULPRIT, MachineSignals()).test == ("point_to_point",)
    assert confirm_culprit(LINK, CULPRIT, MachineSignals(link_errors=1e6)).confirmed is ConfirmationState.YES
    assert (
        confirm_culprit(no_culprit_verdict(0.9), CULPRIT, MachineSignals(xids=(79,))).confirmed
        is ConfirmationState.UNKNOWN
    )


@pytest.mark.parametrize(("slowdown", "minutes"), [(0.1, 110), (0.2, 60), (0.5, 30)])
def test_break_even_is_the_published_arithmetic(slowdown: float, minutes: float) -> None:
    sums = compute_eject_break_even(slowdown, 600, 0, 8)
    assert sums.break_even_s == pytest.approx(minutes * 60)


def test_what_has_lasted_will_last() -> None:
    assert not compute_eject_break_even(0.2, 600, 60, 8).worth
    assert compute_eject_break_even(0.2, 600, 3600, 8).worth
    assert compute_eject_break_even(0.2, 600, 60, 1024).worth  # big jobs' slowdowns last seven times as long


@given(st.floats(), st.floats(), st.floats())
def test_odd_numbers_never_eject(slowdown: float, cost: float, lasted: float) -> None:
    sums = compute_eject_break_even(slowdown, cost, lasted, 8)
    assert sums.worth in (True, False)
    if not slowdown > 0:
        assert not sums.worth


@pytest.mark.parametrize(
    ("slowdown", "lasted", "stalled", "answer"),
    [
        (0.02, 9999, False, EjectUrgency.NOTHING),
        (0.07, 9999, False, EjectUrgency.WATCH),
        (0.12, 60, False, EjectUrgency.WATCH),
        (0.12, 900, False, EjectUrgency.NEXT_CHECKPOINT),
        (0.2, 0, False, EjectUrgency.NOW),
        (0.0, 0, True, EjectUrgency.NOW),
        (math.nan, math.nan, False, EjectUrgency.NOTHING),
    ],
)
def test_levels(slowdown: float, lasted: float, *, stalled: bool, answer: EjectUrgency) -> None:
    assert eject_urgency(slowdown, lasted, stalled=stalled) is answer


def test_one_pass_is_no_habit() -> None:
    other = StragglerVerdict(SlowdownKind.GPU, (Culprit(5, "n0", 0.3),), 7, 0.9, ())
    assert repeat_culprits_of([GPU, other, no_culprit_verdict(0.9)]) == ()
    assert [culprit.rank for culprit in repeat_culprits_of([GPU, other, GPU])] == [3]
    assert [culprit.rank for culprit in repeat_culprits_of([other, GPU, other, GPU, other])] == [5]
    assert repeat_culprits_of([GPU, GPU, no_culprit_verdict(0.9), no_culprit_verdict(0.9)]) == ()
    assert repeat_culprits_of([]) == ()

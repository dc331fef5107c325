"""The wall clock may step by a day at any moment; what has to last is measured on the other clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.pressure_checks import CHECK
from healthd.collectors.pressure import PressureSample, PressureStall
from healthd.findings.facts import Moment
from healthd.findings.finding_ledger import FindingLedger
from healthd.samples.source import SourceReading, SourceState
from healthd.source_monitoring.source_monitor import SourceMonitor
from healthd.source_monitoring.source_registry import map_sources_by_name
from healthd.thresholds import load_thresholds

DAY_S = 86_400.0
RAISED_AFTER_S = 120  # the shipped numbers of the pressure check
CLEARED_AFTER_S = 60


def active(steps: list[tuple[int, float]], percent: float, watch: SourceMonitor, ledger: FindingLedger) -> list[bool]:
    """Whether the shortage is said after each look: (seconds on the steady clock, what the wall clock shows)."""
    said = []
    for monotonic, wall in steps:
        sample = PressureSample((PressureStall("memory", percent, percent, 1, 1),))
        reading = SourceReading(source="pressure", state=SourceState.PRESENT, at=wall, sample=sample)
        watch.take(reading, Moment(wall, float(monotonic)))
        said.append(any(finding.check == CHECK for finding in ledger.active))
    return said


def watched() -> tuple[SourceMonitor, FindingLedger]:
    """The pressure source with its shipped numbers."""
    ledger = FindingLedger("n1", "b")
    source = map_sources_by_name()["pressure"]
    return SourceMonitor(ledger, {"pressure": (source, source.make_check(load_thresholds()))}), ledger


@pytest.mark.parametrize("jump_s", [-DAY_S, 0.0, DAY_S])
def test_a_shortage_lasts_as_long_as_it_lasts_whatever_the_wall_clock_does(jump_s: float) -> None:
    watch, ledger = watched()
    steps = [(at, 1e9 + at + (jump_s if at >= 60 else 0.0)) for at in (0, 60, 119, 120)]
    assert active(steps, 30.0, watch, ledger) == [False, False, False, True]
    steps = [(at, 1e9 + at - jump_s) for at in (130, 130 + CLEARED_AFTER_S - 1, 130 + CLEARED_AFTER_S)]
    assert active(steps, 0.0, watch, ledger) == [True, True, False]


@given(st.lists(st.floats(-1e12, 1e12), min_size=13, max_size=13))
def test_no_wall_clock_makes_it_come_sooner_or_later(walls: list[float]) -> None:
    watch, ledger = watched()
    said = active([(10 * number, wall) for number, wall in enumerate(walls)], 30.0, watch, ledger)
    assert said == [10 * number >= RAISED_AFTER_S for number in range(13)]

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.pressure_checks import Limits, PressureCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.pressure import PressureSample, PressureStall, parse_pressure_file, read_pressure
from healthd.findings.facts import Moment, Raise, Unknown

MEMORY = "some avg10=0.00 avg60=1.50 avg300=0.00 total=900\nfull avg10=0.00 avg60=25.00 avg300=0.00 total=500\n"
LIMITS = Limits(memory_full_percent=20, io_full_percent=60, raise_after_s=120, clear_after_s=60)


def stall(percent: float | None) -> PressureSample:
    return PressureSample((PressureStall("memory", percent, percent, 1, 1),))


def test_it_reads_what_the_kernel_shows(machine: Callable[[Mapping[str, str]], MachineAccess]) -> None:
    sample = read_pressure(
        machine({"/proc/pressure/memory": MEMORY, "/proc/pressure/cpu": "some avg60=3.00 total=7"}), {}
    )
    assert sample == PressureSample(
        (PressureStall("cpu", 3.0, None, 7, None), PressureStall("memory", 1.5, 25.0, 900, 500))
    )


def test_a_kernel_without_it_is_a_state(machine: Callable[[Mapping[str, str]], MachineAccess]) -> None:
    with pytest.raises(SourceAbsent, match="psi=1"):
        read_pressure(machine({}), {})


@given(st.text())
def test_whatever_stands_there_is_a_stall_or_unknown(text: str) -> None:
    assert parse_pressure_file("io", text).resource == "io"


def test_a_shortage_counts_when_it_lasts_and_ends_when_it_is_gone() -> None:
    check = PressureCheck(LIMITS)
    said = {at: check.judge(stall(percent), Moment(0, at)) for at, percent in [(0, 30), (119, 30), (120, 30), (130, 3)]}
    assert isinstance(said[119][0], Unknown)
    assert isinstance(said[120][0], Raise)
    assert said[120][0].summary == "all tasks wait for memory at least 20 % of the time"
    assert isinstance(said[130][0], Unknown), "what was said stays said for a while"
    assert check.judge(stall(3), Moment(0, 190)) == []


def test_an_unknown_value_keeps_what_was() -> None:
    assert isinstance(PressureCheck(LIMITS).judge(stall(None), Moment(0, 0))[0], Unknown)

from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checks.clock_checks import ClockCheck, Limits
from healthd.collectors.clock import ClockSample, read_clock
from healthd.collectors.machine_access import ClockState, MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise

LIMITS = Limits(error_max_s=1.0, raise_after_s=600, clear_after_s=60)
GOOD, FREE, LOOSE = (
    ClockSample(synchronized=True, error_max_us=900, error_estimated_us=3),
    ClockSample(synchronized=False, error_max_us=16_000_000, error_estimated_us=16_000_000),
    ClockSample(synchronized=True, error_max_us=1_500_000, error_estimated_us=3),
)


class Asked(MachineAccess):
    """A machine whose kernel says this of its clock."""

    def __init__(self, timex: ClockState) -> None:
        super().__init__()
        self._timex = timex

    def timex(self) -> ClockState:
        """As given."""
        return self._timex


@pytest.mark.parametrize(
    ("timex", "synchronized"),
    [(ClockState(0, 0x2001, 900, 3), True), (ClockState(5, 0x40, 16, 16), False), (ClockState(0, 0x40, 16, 16), False)],
)
def test_the_kernels_word_is_taken(timex: ClockState, synchronized: bool) -> None:  # noqa: FBT001 - a parameter of the test
    assert read_clock(Asked(timex), {}).synchronized is synchronized


def test_this_machines_clock_can_be_asked() -> None:
    assert read_clock(MachineAccess(), {}).error_max_us >= 0


def test_a_folder_has_no_clock(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent):
        read_clock(MachineAccess(str(tmp_path)), {})


@pytest.mark.parametrize(("sample", "code"), [(FREE, "unsynchronized"), (LOOSE, "inaccurate")])
def test_a_clock_that_nobody_keeps_is_a_warning_once_it_lasts(sample: ClockSample, code: str) -> None:
    check = ClockCheck(LIMITS)
    said = {at: [f.code for f in check.judge(sample, Moment(0, at)) if isinstance(f, Raise)] for at in (0, 599, 600)}
    assert said == {0: [], 599: [], 600: [code]}
    check.judge(GOOD, Moment(0, 700))
    assert check.judge(GOOD, Moment(0, 761)) == []

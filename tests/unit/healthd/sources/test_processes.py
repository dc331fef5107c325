from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.process_checks import Limits, ProcessesCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.processes import ProcessesSample, StuckProcess, parse_stat_line, read_processes
from healthd.findings.facts import Moment, Raise

Build = Callable[[Mapping[str, str]], MachineAccess]
LIMITS = Limits(stuck_after_s=300, zombies=100, raise_after_s=300, clear_after_s=60)


def stat(pid: int, name: str, state: str, started: int = 500) -> str:
    return f"{pid} ({name}) {state} {' '.join('0' for _ in range(18))} {started} 0 0"


def sample(*waiting: tuple[int, int], zombies: int = 0) -> ProcessesSample:
    stuck = tuple(StuckProcess(pid, started, "python3", "D") for pid, started in waiting)
    return ProcessesSample(900, len(stuck), zombies, stuck)


def codes(check: ProcessesCheck, found: ProcessesSample, at: float) -> list[str]:
    return [fact.code for fact in check.judge(found, Moment(0, at)) if isinstance(fact, Raise)]


def test_the_stuck_are_told_from_the_others(machine: Build) -> None:
    files = {
        "/proc/1/stat": stat(1, "init", "S"),
        "/proc/20/stat": stat(20, "a) D (b", "D"),
        "/proc/30/stat": stat(30, "gone", "Z"),
        "/proc/40/stat": "",
        "/proc/self/stat": stat(9, "self", "R"),
    }
    assert read_processes(machine(files), {}) == ProcessesSample(
        3, 1, 1, (StuckProcess(20, 500, "a) D (b", "D"), StuckProcess(30, 500, "gone", "Z"))
    )


def test_no_processes_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent):
        read_processes(machine({}), {})


@given(st.text())
def test_any_line_is_a_process_or_none(line: str) -> None:
    assert parse_stat_line(line) is None or isinstance(parse_stat_line(line), StuckProcess)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=15))
def test_a_name_may_hold_anything(name: str) -> None:
    assert parse_stat_line(stat(7, name, "D")) == StuckProcess(7, 500, name, "D")


def test_one_process_that_waits_without_end_is_a_warning() -> None:
    check = ProcessesCheck(LIMITS)
    assert [codes(check, sample((7, 500)), at) for at in (0, 299, 300)] == [[], [], ["stuck"]]
    assert codes(check, sample(), 360) == []


def test_ever_other_processes_that_wait_are_work() -> None:
    check = ProcessesCheck(LIMITS)
    assert [codes(check, sample((7, at)), at) for at in range(0, 900, 60)] == [[]] * 15


def test_the_dead_count_when_they_are_many_for_long() -> None:
    check = ProcessesCheck(LIMITS)
    assert [codes(check, sample(zombies=100), at) for at in (0, 300)] == [[], ["zombies"]]

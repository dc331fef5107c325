from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.fabric_manager_checks import FabricManagerCheck, Limits
from healthd.collectors.fabric_manager import (
    TAIL_BYTES,
    FabricManagerSample,
    SwitchError,
    parse_fabric_manager_log,
    read_fabric_manager,
)
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise
from vocabulary.finding import Severity

Build = Callable[[Mapping[str, str]], MachineAccess]
WHERE = "/var/log/fabricmanager.log"
FATAL = (
    "[Mar 04 2025 12:00:00] [ERROR] [tid 7] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
    "00000000:C1:00.0 physical id 2 port 28"
)
MILD = FATAL.replace("fatal", "non-fatal").replace("20034", "12028").replace(" port 28", "")


def test_switch_errors_are_read_among_other_lines(machine: Build) -> None:
    text = f"[Mar 04 2025 11:59:59] [INFO] [tid 7] started\n{FATAL}\n[Mar 04 2025 12:00:01] [ERROR] [tid 7] other\n{MILD}\n"
    sample = read_fabric_manager(machine({WHERE: text}), {})
    assert sample.error_lines == 3
    assert [(e.fatal, e.code, e.pci, e.port) for e in sample.errors] == [
        (True, "20034", "00000000:C1:00.0", 28),
        (False, "12028", "00000000:C1:00.0", None),
    ]


def test_only_the_end_of_a_long_log_is_read_from_a_whole_line_on(machine: Build) -> None:
    sample = read_fabric_manager(machine({WHERE: f"{FATAL}\n" * (2 * TAIL_BYTES // len(FATAL))}), {})
    assert 0 < sample.error_lines <= TAIL_BYTES // len(FATAL)
    assert {error.stamp for error in sample.errors} == {"Mar 04 2025 12:00:00"}


def test_no_log_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent, match="no NVSwitches"):
        read_fabric_manager(machine({}), {})


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    assert parse_fabric_manager_log(text).error_lines >= len(parse_fabric_manager_log(text).errors)


def test_what_is_new_since_the_last_look_is_an_event() -> None:
    check = FabricManagerCheck(Limits(fatal_is_error=1))
    old, new = (
        parse_fabric_manager_log(FATAL).errors,
        parse_fabric_manager_log(f"{FATAL}\n{MILD}\n{FATAL.replace('12:00:00', '12:00:05')}").errors,
    )
    assert check.judge(FabricManagerSample(old, 1), Moment(0, 0)) == [], "what was there before us is of the past"
    facts = check.judge(FabricManagerSample(new, 3), Moment(10, 10))
    assert [(f.code, f.severity, f.event) for f in facts if isinstance(f, Raise)] == [
        ("12028", Severity.WARNING, True),
        ("20034", Severity.ERROR, True),
    ]
    assert facts[0].component.pci == "0000:c1:00.0"
    assert check.judge(FabricManagerSample(new, 3), Moment(20, 20)) == []


def test_an_address_that_cannot_be_read_still_counts() -> None:
    check = FabricManagerCheck(Limits(fatal_is_error=0))
    check.judge(FabricManagerSample((), 0), Moment(0, 0))
    (fact,) = check.judge(FabricManagerSample((SwitchError("s", True, "1", ":::::::", None, "t"),), 1), Moment(1, 1))
    assert isinstance(fact, Raise)
    assert (fact.component.pci, fact.severity) == ("", Severity.WARNING)

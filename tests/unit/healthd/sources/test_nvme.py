from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.checks.nvme_checks import Limits, NvmeCheck
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.collectors.nvme import LOG_BYTES, NvmeDisk, NvmeHealth, NvmeSample, parse_health_log, read_nvme
from healthd.findings.facts import Moment, Raise, Unknown
from vocabulary.finding import Severity

Build = Callable[[Mapping[str, str]], MachineAccess]
LIMITS = Limits(used_percent=100, media_errors_in_window=1, window_s=86400, raise_after_s=60, clear_after_s=60)
DISK = NvmeDisk("nvme0", "0000:41:00.0", "SAMSUNG MZWLJ3T8", "S5", "EPK9", "live", 0, 40, 100, 10, 3, 0, 5)


def health_log(**at: int) -> bytes:
    log = bytearray(LOG_BYTES)
    log[0], log[1:3], log[3], log[4], log[5] = at.get("bits", 0), (313).to_bytes(2, "little"), 98, 10, 7
    log[144:160] = (12).to_bytes(16, "little")
    log[160:176] = at.get("media_errors", 0).to_bytes(16, "little")
    return bytes(log)


def raised(check: NvmeCheck, disk: NvmeDisk, at: float = 0) -> list[Raise]:
    return [fact for fact in check.judge(NvmeSample((disk,)), Moment(0, at)) if isinstance(fact, Raise)]


def test_controllers_are_read_and_one_that_may_not_be_asked_has_no_health(machine: Build) -> None:
    where = "/sys/class/nvme/nvme0"
    files = {
        f"{where}/state": "live",
        f"{where}/model": "M ",
        f"{where}/serial": "S",
        f"{where}/address": "0000:41:00.0",
    }
    assert read_nvme(machine(files), {}).disks == (NvmeDisk("nvme0", "0000:41:00.0", "M", "S", "", "live"),)


def test_a_machine_without_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent):
        read_nvme(machine({}), {})


def test_the_health_log_is_read_by_its_specification() -> None:
    assert parse_health_log(health_log(bits=5, media_errors=2)) == NvmeHealth(5, 40, 98, 10, 7, 2, 12)


@given(st.binary(max_size=2 * LOG_BYTES))
def test_any_bytes_are_a_log_or_too_short(log: bytes) -> None:
    if len(log) < LOG_BYTES:
        with pytest.raises(ValueError, match="has 512 bytes"):
            parse_health_log(log)
    else:
        assert 0 <= parse_health_log(log).media_errors < 1 << 63


@pytest.mark.parametrize(
    ("bits", "severity"), [(1, Severity.WARNING), (4, Severity.ERROR), (8, Severity.ERROR), (64, Severity.WARNING)]
)
def test_the_disks_own_warnings_are_taken_at_their_weight(bits: int, severity: Severity) -> None:
    (fact,) = raised(NvmeCheck(LIMITS), DISK._replace(critical_bits=bits))
    assert (fact.code, fact.severity) == ("critical", severity)


def test_a_controller_that_is_gone_for_long_is_an_error() -> None:
    check = NvmeCheck(LIMITS)
    gone = DISK._replace(state="dead", critical_bits=None, media_errors=None, used_percent=None)
    assert [fact.code for fact in raised(check, gone, 0)] == []
    assert [fact.code for fact in raised(check, gone, 60)] == ["not_live"]


def test_wear_and_lost_data_are_warnings() -> None:
    check = NvmeCheck(LIMITS)
    assert [fact.code for fact in raised(check, DISK._replace(used_percent=100))] == ["worn"]
    assert [fact.code for fact in raised(check, DISK._replace(media_errors=1), 60)] == ["media_errors"]


def test_a_health_that_cannot_be_read_is_unknown() -> None:
    dumb = NvmeDisk("nvme0", "", "", "", "", "live")
    facts = NvmeCheck(LIMITS).judge(NvmeSample((dumb,)), Moment(0, 0))
    assert [fact.code for fact in facts if isinstance(fact, Unknown)] == [
        "not_live",
        "critical",
        "worn",
        "media_errors",
    ]

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from healthd.checks.edac_checks import EdacCheck, Limits
from healthd.collectors.edac import Dimm, EdacSample, read_edac
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise, Unknown
from vocabulary.finding import Severity

Build = Callable[[Mapping[str, str]], MachineAccess]
MC = "/sys/devices/system/edac/mc/mc0"
LIMITS = Limits(corrected_in_window=100, window_s=3600, clear_after_s=600)


def sample(corrected: int | None, uncorrected: int | None) -> EdacSample:
    return EdacSample((Dimm("mc0", "dimm3", "CPU0_A1", corrected, uncorrected),))


def test_every_module_and_what_could_not_be_placed_is_read(machine: Build) -> None:
    files = {
        f"{MC}/dimm3/dimm_label": "CPU0_A1\n",
        f"{MC}/dimm3/dimm_ce_count": "7\n",
        f"{MC}/dimm3/dimm_ue_count": "1\n",
        f"{MC}/ce_noinfo_count": "2\n",
        f"{MC}/ce_count": "9\n",
        f"{MC}/power/control": "auto\n",
    }
    assert read_edac(machine(files), {}).dimms == (Dimm("mc0", "dimm3", "CPU0_A1", 7, 1), Dimm("mc0", "", "", 2, None))


def test_a_controller_without_modules_gives_its_sums(machine: Build) -> None:
    files = {f"{MC}/ce_count": "9\n", f"{MC}/ue_count": "0\n"}
    assert read_edac(machine(files), {}).dimms == (Dimm("mc0", "", "", 9, 0),)


def test_a_machine_without_ecc_memory_is_a_state(machine: Build) -> None:
    with pytest.raises(SourceAbsent, match="no ECC memory"):
        read_edac(machine({"/sys/devices/system/edac/mc/power/control": "auto"}), {})


def test_wrong_data_since_boot_is_an_error_that_names_the_module() -> None:
    (fact,) = [f for f in EdacCheck(LIMITS).judge(sample(0, 1), Moment(0, 0)) if isinstance(f, Raise)]
    assert (fact.code, fact.severity) == ("uncorrected", Severity.ERROR)
    assert "CPU0_A1" in fact.summary


def test_corrected_errors_count_when_they_come_fast() -> None:
    check = EdacCheck(LIMITS)
    assert isinstance(check.judge(sample(1000, 0), Moment(0, 0))[0], Unknown), "what was before us is no growth"
    assert [f.code for f in check.judge(sample(1100, 0), Moment(0, 60))] == ["corrected"]
    assert isinstance(check.judge(sample(1100, 0), Moment(0, 3700))[0], Unknown), "it stays said for a while"
    assert check.judge(sample(1100, 0), Moment(0, 4400)) == []


def test_a_few_in_an_hour_are_nothing() -> None:
    check = EdacCheck(LIMITS)
    for minute in range(120):
        facts = check.judge(sample(minute, 0), Moment(0, minute * 60))
    assert facts == []


def test_counts_that_cannot_be_read_are_unknown() -> None:
    assert {type(fact) for fact in EdacCheck(LIMITS).judge(sample(None, None), Moment(0, 0))} == {Unknown}

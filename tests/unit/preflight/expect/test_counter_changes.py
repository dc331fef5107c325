from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.expectations.counter_changes import (
    CORRECTED_PER_TEST,
    RULES,
    describe_findings,
    describe_unsupported,
    judge_counters,
    judge_error_states,
    list_counter_changes,
)
from preflight.host.counter_records import HardwareCounter, HardwareCounters
from preflight.results import CounterChange, Outcome

UNCORRECTABLE = ("ecc_uncorrected", "remapped_uncorrectable", "retired_double_bit", "nvlink_recoveries")
names = st.sampled_from([*RULES, "of_a_later_release"])
places = st.sampled_from(["", "dram", "l2_cache", "sram", "NVLink 0", "NVLink 17", "NVLink x"])
values = st.one_of(st.integers(0, 10), st.integers(0, (1 << 63) - 1))
readings = st.builds(
    HardwareCounters,
    uuid=st.just("GPU-1"),
    counters=st.lists(st.builds(HardwareCounter, names, places, values), max_size=8).map(tuple),
    remap_pending=st.sampled_from([None, False, True]),
    remap_failed=st.sampled_from([None, False, True]),
    retirement_pending=st.sampled_from([None, False, True]),
    recovery_action=st.sampled_from([None, 0, 1, 4, 77, -3, 1 << 40]),
    throttle_reasons=st.one_of(st.none(), st.integers(0, (1 << 64) - 1)),
    failure=st.sampled_from(["", "Unknown Error"]),
    lost=st.booleans(),
    reset_required=st.booleans(),
)


def counted(name: str, value: int, where: str = "dram", **states: bool | int) -> HardwareCounters:
    return HardwareCounters(uuid="GPU-1", counters=(HardwareCounter(name, where, value),), **states)  # type: ignore[arg-type]  # states by name


def outcomes(
    before: HardwareCounters,
    after: HardwareCounters,
    *,
    test: str = "memory_pattern",
    level: str = "gate",
    seconds: float = 1.0,
) -> list[Outcome]:
    return [each.outcome for each in judge_counters(before, after, test=test, level=level, seconds=seconds)]


@given(readings, readings, st.floats(0, 1e6), st.sampled_from(["gate", "standard", "burn-in", "of a later release"]))
def test_no_pair_of_readings_raises_and_each_finding_has_words(
    before: HardwareCounters, after: HardwareCounters, seconds: float, level: str
) -> None:
    for finding in judge_counters(before, after, test="collectives", level=level, seconds=seconds):
        assert finding.words
        assert finding.outcome in (Outcome.PASS, Outcome.FAIL)
        assert finding.link is None or 0 <= finding.link <= 17


@given(readings)
def test_nothing_that_stays_as_it_was_is_a_fault(reading: HardwareCounters) -> None:
    once = msgspec.structs.replace(
        reading, counters=tuple({(each.name, each.where): each for each in reading.counters}.values())
    )
    assert not list_counter_changes(once, once)
    assert Outcome.FAIL not in outcomes(once, once)


@given(st.sampled_from(UNCORRECTABLE), places, st.integers(0, 1 << 62), st.integers(1, 1 << 62))
def test_any_new_uncorrectable_error_fails(name: str, where: str, before: int, added: int) -> None:
    for level in CORRECTED_PER_TEST:
        assert Outcome.FAIL in outcomes(counted(name, before, where), counted(name, before + added, where), level=level)


@given(names, places, st.integers(1, 1 << 62))
def test_a_counter_that_goes_backwards_is_a_remark(name: str, where: str, before: int) -> None:
    found = judge_counters(
        counted(name, before, where), counted(name, before - 1, where), test="host_memory", level="gate", seconds=1.0
    )
    assert [each.outcome for each in found] == [Outcome.PASS] * (name in RULES)
    assert all(f"went backwards ({before} → {before - 1})" in each.words for each in found)


@given(names, st.integers(0, 1 << 62))
def test_a_counter_that_only_one_reading_has_says_nothing(name: str, value: int) -> None:
    empty = HardwareCounters(uuid="GPU-1")
    assert outcomes(empty, counted(name, value)) == outcomes(counted(name, value), empty) == []


def test_a_double_bit_error_is_named_with_its_memory_and_its_values() -> None:
    (finding,) = judge_counters(
        counted("ecc_uncorrected", 1), counted("ecc_uncorrected", 2), test="matmul_repeat", level="gate", seconds=1.0
    )
    assert finding.words.startswith("dram: 1 more uncorrectable ECC error (ecc_uncorrected 1 → 2); reset the GPU")


@pytest.mark.parametrize(("level", "most"), CORRECTED_PER_TEST.items())
def test_corrected_errors_have_a_limit_at_each_level(level: str, most: float) -> None:
    before = counted("ecc_corrected", 7)
    assert outcomes(before, counted("ecc_corrected", 7 + int(most)), level=level) == [Outcome.PASS]
    assert outcomes(before, counted("ecc_corrected", 8 + int(most)), level=level) == [Outcome.FAIL]


@pytest.mark.parametrize(
    ("name", "where", "seconds", "most"),
    [
        ("pcie_replays", "", 1.0, 80),
        ("pcie_replays", "", 60.0, 480),
        ("nvlink_crc", "NVLink 3", 1.0, 1000),
        ("nvlink_replays", "NVLink 3", 60.0, 60),
        ("nvlink_recoveries", "NVLink 3", 600.0, 0),
    ],
)
def test_links_have_a_limit_per_minute(name: str, where: str, seconds: float, most: int) -> None:
    before = counted(name, 0, where)
    if most:
        assert outcomes(before, counted(name, most, where), seconds=seconds) == [Outcome.PASS]
    (finding,) = judge_counters(
        before, counted(name, most + 1, where), test="collectives", level="gate", seconds=seconds
    )
    assert finding.outcome is Outcome.FAIL
    assert finding.link == (3 if where else None)


def test_a_test_that_judges_its_counters_itself_is_not_judged_twice() -> None:
    before, after = counted("nvlink_recoveries", 0, "NVLink 1"), counted("nvlink_recoveries", 1, "NVLink 1")
    assert outcomes(before, after, test="peer_links") == []
    assert (
        outcomes(before, after, test="collectives") == outcomes(before, after, test="sustained_load") == [Outcome.FAIL]
    )
    assert outcomes(counted("pcie_replays", 0), counted("pcie_replays", 900), test="host_link") == []


@pytest.mark.parametrize(
    ("states", "says"),
    [
        ({"remap_pending": True}, "a row remap is pending; reset the GPU"),
        ({"remap_failed": True}, "a row remap failed; run the field diagnostic"),
        ({"retirement_pending": True}, "the retirement of a page is pending; reset the GPU"),
        ({"recovery_action": 1}, "the driver asks for a reset of the GPU (recovery action 1)"),
        ({"recovery_action": 99}, "an action unknown to this release"),
        ({"lost": True, "failure": "GPU is lost"}, "the driver lost the GPU"),
        ({"reset_required": True, "failure": "GPU requires reset"}, "reset the GPU"),
    ],
)
def test_a_new_error_state_fails_and_an_old_one_is_that_of_the_run(states: dict[str, bool | int], says: str) -> None:
    good, bad = HardwareCounters(uuid="GPU-1"), HardwareCounters(uuid="GPU-1", **states)  # type: ignore[arg-type]  # states by name
    (finding,) = judge_counters(good, bad, test="memory_pattern", level="gate", seconds=1.0)
    assert finding.outcome is Outcome.FAIL
    assert says in finding.words
    assert Outcome.FAIL not in outcomes(bad, bad)
    assert [each.words for each in judge_error_states(bad)] == [finding.words]
    assert judge_error_states(good) == ()


def test_figures_measured_under_slowdown_say_so() -> None:
    before, after = counted("hw_thermal_slowdown_ns", 0, ""), counted("hw_thermal_slowdown_ns", 1_500_000_000, "")
    (finding,) = judge_counters(before, after, test="sustained_load", level="standard", seconds=20.0)
    assert (finding.outcome, finding.words) == (
        Outcome.PASS,
        "measured under hardware thermal slowdown, for 1.5 of 20 s",
    )
    (finding,) = judge_counters(
        HardwareCounters(uuid="GPU-1"),
        HardwareCounters(uuid="GPU-1", throttle_reasons=0x80),
        test="sustained_load",
        level="standard",
        seconds=20.0,
    )
    assert (finding.outcome, finding.words) == (Outcome.PASS, "the power brake was active at its end")


def test_unread_counters_are_a_remark() -> None:
    good, unread = counted("ecc_uncorrected", 0), HardwareCounters(uuid="GPU-1", failure="Unknown Error")
    for before, after in ((good, unread), (unread, good)):
        (finding,) = judge_counters(before, after, test="memory_pattern", level="gate", seconds=1.0)
        assert finding.outcome is Outcome.PASS
        assert "could not be read (Unknown Error)" in finding.words


def test_many_changes_are_summed_up_and_unsupported_kinds_are_named() -> None:
    many = [HardwareCounter("nvlink_recoveries", f"NVLink {link}", 0) for link in range(8)]
    before = HardwareCounters(uuid="GPU-1", counters=tuple(many))
    after = msgspec.structs.replace(
        before, counters=tuple(msgspec.structs.replace(each, value=1) for each in many), unsupported=("ECC errors",)
    )
    found = judge_counters(before, after, test="collectives", level="gate", seconds=1.0)
    assert describe_findings(found, Outcome.FAIL).endswith("; and 3 more changes")
    assert list_counter_changes(before, after)[0] == CounterChange(
        name="nvlink_recoveries", where="NVLink 0", before=0, after=1
    )
    assert describe_unsupported(after) == "the driver does not report ECC errors: errors of this kind remain unknown"
    assert describe_unsupported(before) == ""

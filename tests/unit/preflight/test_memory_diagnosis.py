from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Device
from preflight.checks.memory_diagnosis import (
    LINE_WORDS,
    MemoryFaultKind,
    build_failed_result,
    diagnose_decay,
    diagnose_errors,
)
from preflight.kernels.memory_errors import Errors, WrongWord
from preflight.kernels.memory_patterns import FULL, GATE, HASH, Pattern, compute_expected_word
from preflight.results import Location, Outcome, Result

ADDRESS, RANDOM, INVERTED, WALKING = GATE
WORDS = 1 << 20
DEVICE = Device(name="cpu:1", torch_name="cpu", index=1, label="host memory")
BY_NAME = {pattern.name: pattern for pattern in FULL}


def errors(pattern: Pattern, wrong: dict[int, int], again: dict[int, int] | None = None, times: int = 1) -> Errors:
    """Words at addresses that were read as given; `again` is what a second reading gave, the same if not said."""
    listed = tuple(
        WrongWord(0, at, at * 8, compute_expected_word(pattern, at), read, (again or wrong)[at])
        for at, read in sorted(wrong.items())
    )
    bits = tuple(sum((word.expected ^ word.actual) >> bit & 1 for word in listed) * times for bit in range(64))
    return Errors(pattern.name, len(listed) * times, bits, listed)


def flipped(pattern: Pattern, *places: tuple[int, int]) -> dict[int, int]:
    return {at: compute_expected_word(pattern, at) ^ 1 << bit for at, bit in places}


def kind(first: list[Errors], second: list[Errors]) -> MemoryFaultKind:
    return diagnose_errors(first, second, BY_NAME, WORDS).kind


def test_a_word_that_is_right_when_written_anew_changed_once() -> None:
    assert kind([errors(RANDOM, flipped(RANDOM, (70, 3)))], []) is MemoryFaultKind.CHANGED_ONCE


def test_a_word_that_is_right_when_read_again_was_misread() -> None:
    wrong, right = flipped(RANDOM, (70, 3)), {70: compute_expected_word(RANDOM, 70)}
    assert kind([errors(RANDOM, wrong, right)], []) is MemoryFaultKind.MISREAD


@pytest.mark.parametrize("value", [0, 1])
def test_a_stuck_bit_is_named_with_its_value(value: int) -> None:
    wanting = [one for one in FULL if compute_expected_word(one, 9) >> 42 & 1 != value]
    first = [errors(one, flipped(one, (9, 42)), times=200) for one in wanting]
    found = diagnose_errors(first, first[:1], BY_NAME, WORDS)
    assert found.kind is MemoryFaultKind.STUCK_BIT
    assert f"bit 42 of one word is stuck at {value}" in found.words


def test_the_same_words_again_are_more_than_one_stuck_bit() -> None:
    first = [errors(RANDOM, flipped(RANDOM, (9, 42), (10, 3)))]
    assert kind(first, [errors(RANDOM, flipped(RANDOM, (9, 42)))]) is MemoryFaultKind.REPEATED
    unsteady = [errors(RANDOM, flipped(RANDOM, (9, 42))), errors(INVERTED, flipped(INVERTED, (9, 42)))]
    assert kind(unsteady, unsteady) is MemoryFaultKind.REPEATED


def test_other_words_each_time_are_intermittent_also_where_nobody_knows_which() -> None:
    first = [errors(RANDOM, flipped(RANDOM, (9, 42)))]
    assert kind(first, [errors(WALKING, flipped(WALKING, (10, 42)))]) is MemoryFaultKind.INTERMITTENT
    assert kind(first, [Errors("random", 1, (0,) * 64, ())]) is MemoryFaultKind.INTERMITTENT


def test_the_same_bit_of_many_words_is_a_line() -> None:
    many = flipped(RANDOM, *((97 * i, 13) for i in range(LINE_WORDS)))
    found = diagnose_errors([errors(RANDOM, many)], [], BY_NAME, WORDS)
    assert (found.kind, found.words.startswith("bit 13 of many words")) == (MemoryFaultKind.DATA_LINE, True)
    scattered = flipped(RANDOM, *((97 * i, i % 64) for i in range(LINE_WORDS)))
    assert kind([errors(RANDOM, scattered)], []) is MemoryFaultKind.CHANGED_ONCE


def test_one_word_read_many_times_is_no_line() -> None:
    first = [errors(RANDOM, flipped(RANDOM, (9, 42)), times=LINE_WORDS * 10)]
    assert kind(first, first) is MemoryFaultKind.STUCK_BIT


@given(
    st.sampled_from([one for one in FULL if one.kind == HASH]),
    st.integers(0, WORDS - 1),
    st.integers(0, 19),
)
def test_a_word_that_answers_for_another_is_an_alias_with_both_addresses(pattern: Pattern, at: int, bit: int) -> None:
    other = at ^ 1 << bit
    found = diagnose_errors([errors(pattern, {at: compute_expected_word(pattern, other)})], [], BY_NAME, WORDS)
    assert found.kind is MemoryFaultKind.ALIAS
    assert f"{at * 8:#x} returns the word of {other * 8:#x}" in found.words
    assert f"bit {bit + 3} of the address" in found.words


def test_aliases_of_no_single_address_bit_are_told_without_one() -> None:
    wrong = {5: compute_expected_word(RANDOM, 6), 9: compute_expected_word(RANDOM, 1)}
    assert "differ in" not in diagnose_errors([errors(RANDOM, wrong)], [], BY_NAME, WORDS).words


@given(st.sampled_from(FULL), st.integers(0, WORDS - 1), st.integers(1, (1 << 64) - 1))
def test_a_word_with_wrong_bits_is_no_alias(pattern: Pattern, at: int, flip: int) -> None:
    assert kind([errors(pattern, {at: compute_expected_word(pattern, at) ^ flip})], []) is not MemoryFaultKind.ALIAS


def test_charge_that_is_lost_is_counted_by_direction() -> None:
    zeros, ones = Pattern("zeros", 2), Pattern("zeros", 2).inverted()
    found = diagnose_decay([errors(zeros, {1: 0b101}), errors(ones, {2: compute_expected_word(ones, 2) ^ 1})])
    assert found.kind is MemoryFaultKind.DECAYED
    assert "1 bits went to 0, 2 to 1" in found.words


def test_the_result_tells_where_which_bits_and_what_kind_and_keeps_what_was_known() -> None:
    first = [
        errors(RANDOM, flipped(RANDOM, (9, 42), (1 << 18, 3)), times=2),
        errors(INVERTED, flipped(INVERTED, (9, 42))),
    ]
    so_far = Result(test="t", outcome=Outcome.PASS, device="cpu:1", remarks=("said",), evidence={"way": "torch"})
    result = build_failed_result(so_far, first, diagnose_errors(first, first, BY_NAME, WORDS), DEVICE)
    assert (result.outcome, result.device, result.remarks) == (Outcome.FAIL, "cpu:1", ("said",))
    assert [(each.gpu, each.address, each.page) for each in result.locations] == [
        ("cpu:1", "0x48", "allocation 0, virtual page 0 of 64 KiB, 0 of 2 MiB"),
        ("cpu:1", "0x200000", "allocation 0, virtual page 32 of 64 KiB, 1 of 2 MiB"),
    ]
    assert result.reason.startswith("5 wrong reads in random; random, inverted: after a rewrite, the same words")
    assert "first: allocation 0 + 0x48" in result.reason
    assert result.evidence["bit_histogram"] == "3: 2, 42: 3"
    assert (result.evidence["wrong_reads"], result.evidence["wrong_words"]) == (5, 2)
    assert (result.evidence["wrong_bits"], result.evidence["way"]) == (f"{1 << 42 | 1 << 3:#018x}", "torch")


def test_a_reason_names_some_patterns_and_counts_the_rest() -> None:
    first = [errors(one, flipped(one, (9, 42))) for one in FULL[:7]]
    result = build_failed_result(
        Result(test="t", outcome=Outcome.PASS), first, diagnose_errors(first, [], BY_NAME, WORDS), DEVICE
    )
    assert "in address; address, inverted; zeros and 4 more patterns: " in result.reason
    assert str(result.evidence["pattern"]).count(";") == 6


def test_a_wrong_read_of_nobody_knows_what_is_a_result_too() -> None:
    first = [Errors("random", 1, (0,) * 64, ())]
    result = build_failed_result(
        Result(test="t", outcome=Outcome.PASS), first, diagnose_errors(first, [], BY_NAME, WORDS), DEVICE
    )
    assert (result.outcome, result.evidence["kind"]) == (Outcome.FAIL, "misread")
    assert result.locations == (Location(gpu="cpu:1"),)

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.kernels.memory_patterns import (
    ADDRESS,
    ALL_BITS,
    DOWN,
    FULL,
    GATE,
    HASH,
    SCATTERED,
    UP,
    Pattern,
    choose_program_stride,
    compute_expected_word,
    find_address,
    sum_address_pattern,
)

WORDS = st.integers(0, ALL_BITS)

EVERY = sorted(set(FULL + GATE))


@pytest.mark.parametrize("blocks", [1, 2, 3, 6, 20, 97, 1 << 20, (1 << 27) - 20])
@pytest.mark.parametrize("order", [UP, DOWN, SCATTERED])
def test_every_order_visits_every_block_once(order: str, blocks: int) -> None:
    one = choose_program_stride(order, blocks)
    assert math.gcd(one, blocks) == 1
    assert blocks * one < 1 << 63
    if blocks < 100:
        assert sorted(turn * one % blocks for turn in range(blocks)) == list(range(blocks))


def test_down_is_backwards() -> None:
    assert [turn * choose_program_stride(DOWN, 5) % 5 for turn in range(5)] == [0, 4, 3, 2, 1]


@pytest.mark.parametrize("pattern", EVERY, ids=lambda pattern: pattern.name)
def test_the_inverse_of_a_pattern_is_its_complement_everywhere(pattern: Pattern) -> None:
    for address in (0, 1, 19, 20, (1 << 34) + 7):
        assert compute_expected_word(pattern, address) ^ compute_expected_word(pattern.inverted(), address) == ALL_BITS
        assert 0 <= compute_expected_word(pattern, address) <= ALL_BITS


def test_every_pattern_has_a_name_of_its_own() -> None:
    assert len({pattern.name for pattern in FULL}) == len(FULL)


@pytest.mark.parametrize("patterns", [GATE, FULL])
def test_together_every_bit_of_every_word_is_once_0_and_once_1(patterns: tuple[Pattern, ...]) -> None:
    for address in (0, 5, (1 << 33) + 11):
        words = [compute_expected_word(pattern, address) for pattern in patterns]
        ones, zeros = 0, 0
        for word in words:
            ones, zeros = ones | word, zeros | ~word & ALL_BITS
        assert (ones, zeros) == (ALL_BITS, ALL_BITS)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind of pattern 99"):
        compute_expected_word(Pattern("?", 99), 0)


@given(st.integers(0, 1 << 45), WORDS, WORDS)
def test_a_random_word_tells_where_it_belongs(address: int, seed: int, flip: int) -> None:
    pattern = Pattern("random", HASH, seed=seed, flip=flip)
    assert find_address(pattern, compute_expected_word(pattern, address)) == address


@given(st.integers(0, 1 << 45), st.integers(0, 100), WORDS)
def test_the_sum_of_addresses_is_known_without_adding(first: int, words: int, flip: int) -> None:
    pattern = Pattern("addresses", ADDRESS, flip=flip)
    assert (
        sum_address_pattern(pattern, first, words)
        == sum(compute_expected_word(pattern, first + i) for i in range(words)) & ALL_BITS
    )


def test_what_other_patterns_cannot_tell_is_refused() -> None:
    with pytest.raises(ValueError, match="do not encode their address"):
        find_address(GATE[0], 0)
    with pytest.raises(ValueError, match="must be added up"):
        sum_address_pattern(GATE[1], 0, 1)

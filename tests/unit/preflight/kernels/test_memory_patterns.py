from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.kernels.memory_patterns import (
    ADDRESS,
    ALL_BITS,
    DOWN,
    EVEN_BITS,
    FULL,
    GATE,
    HASH,
    HASH_FACTOR,
    SCATTERED,
    UP,
    Pattern,
    choose_program_stride,
    compute_expected_word,
    find_address,
    reseed_patterns,
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


@given(WORDS, WORDS)
def test_every_word_is_the_random_word_of_one_address(word: int, seed: int) -> None:
    pattern = Pattern("random", HASH, seed=seed)
    assert compute_expected_word(pattern, find_address(pattern, word)) == word


def hash_words(pattern: Pattern, first: int, words: int, step: int = 1) -> Any:
    at = np.uint64(first) + np.arange(words, dtype=np.uint64) * np.uint64(step)
    state = at * np.uint64(HASH_FACTOR) + np.uint64(pattern.seed)
    made = state ^ (state >> np.uint64(32))
    assert int(made[-1]) == compute_expected_word(pattern, first + (words - 1) * step)
    return made


def ones(words: Any) -> Any:
    """The share of words that have each bit."""
    return np.unpackbits(words.view(np.uint8).reshape(-1, 8), axis=1).mean(axis=0)


@pytest.mark.parametrize("first", [0, (1 << 34) + 12345])
@pytest.mark.parametrize("distance", [1, 2, 16, 1 << 10, 1 << 18, 1 << 24])
def test_random_words_have_every_bit_half_of_the_time_and_it_changes_between_neighbours(
    first: int, distance: int
) -> None:
    """Neighbours in a line, a row, a page: nowhere does a bit stay as it is for long, or change every time."""
    words = hash_words(GATE[1], first, 1 << 15, distance)
    assert 0.47 < ones(words).min() <= ones(words).max() < 0.53
    changes = ones(words[1:] ^ words[:-1])
    assert 1 / 16 < changes.min() <= changes.max() < 15 / 16


def test_a_stuck_bit_of_the_address_changes_many_bits_of_a_random_word() -> None:
    rng = np.random.default_rng(1)
    for bit in range(35):
        at = int(rng.integers(0, 1 << 35))
        words = hash_words(GATE[1], at & ~(1 << bit), 2, 1 << bit)
        assert int(words[0] ^ words[1]).bit_count() >= 6, (bit, at)


def address_steps(states: set[int]) -> Any:
    """How far the address of a word moves, up or down, when the state behind it flips in these bits, in whatever values they have."""
    powers = np.zeros((len(states), 64), dtype=np.int64)
    for row, flipped in enumerate(states):
        held = [bit for bit in range(64) if flipped >> bit & 1]
        powers[row, : len(held)] = np.left_shift(np.uint64(1), np.array(held, dtype=np.uint64)).view(np.int64)
    used = int((powers != 0).sum(axis=1).max())
    signs = np.array(list(itertools.product((1, -1), repeat=used)), dtype=np.int64)
    steps = (powers[:, :used] @ signs.T).view(np.uint64) * np.uint64(pow(HASH_FACTOR, -1, 1 << 64))
    return np.minimum(steps, ~steps + np.uint64(1))


@pytest.mark.parametrize("flips", [1, 2, 3])
def test_a_random_word_with_up_to_three_flipped_bits_is_the_word_of_no_address(flips: int) -> None:
    """For all addresses and seeds at once: each bit of the state that flips adds a fixed number of addresses, or subtracts it."""
    of_state = [1 << bit | 1 << bit >> 32 for bit in range(64)]
    states = {functools.reduce(operator.xor, chosen) for chosen in itertools.combinations(of_state, flips)}
    assert int(address_steps(states).min()) > 1 << 47


def test_words_of_another_pattern_or_round_and_constant_words_are_of_no_address() -> None:
    seeds = {one.seed for number in range(64) for one in reseed_patterns(FULL, number) if one.kind == HASH}
    assert len(seeds) == 3 * 64
    for one in seeds:
        pattern = Pattern("random", HASH, seed=one)
        for word in (
            0,
            ALL_BITS,
            EVEN_BITS,
            EVEN_BITS << 1,
            *(compute_expected_word(pattern._replace(seed=s), 0) for s in seeds - {one}),
        ):
            found = find_address(pattern, word)
            assert 1 << 40 < found < ALL_BITS - (1 << 40)


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

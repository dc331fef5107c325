from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks.collective_ops import compute_own_bits, find_bit_senders
from preflight.checks.hashed_payloads import (
    derive_seed,
    fill_sentinel,
    fill_words,
    find_mismatched_words,
    hash_word_sequence,
)
from preflight.kernels.memory_patterns import ALL_BITS, SPLITMIX, Pattern, compute_expected_word

pytestmark = pytest.mark.torch
SEEDS = st.integers(0, ALL_BITS)


@given(SEEDS, st.integers(0, 1 << 30), SEEDS)
def test_words_are_those_of_the_pure_pattern(seed: int, first: int, keep: int) -> None:
    words = [word & ALL_BITS for word in hash_word_sequence(seed, first, 5, "cpu", keep).tolist()]
    assert words == [compute_expected_word(Pattern("", SPLITMIX, seed=seed), first + n) & keep for n in range(5)]


@given(SEEDS, st.data())
def test_every_flipped_bit_is_found_where_it_is(seed: int, data: st.DataObject) -> None:
    words = torch.empty(257, dtype=torch.int64)
    fill_words(words, seed)
    assert find_mismatched_words(words, seed) is None
    flips = data.draw(st.dictionaries(st.integers(0, 256), st.integers(0, 62), min_size=1, max_size=9))
    for place, bit in flips.items():
        words[place] ^= 1 << bit
    wrong = find_mismatched_words(words, seed)
    assert wrong
    assert (wrong.words, wrong.first) == (len(flips), min(flips))
    assert wrong.bits == sum(1 << bit for bit in set(flips.values()))
    assert wrong.wanted ^ wrong.found == 1 << flips[min(flips)]


def test_nothing_received_is_not_mistaken_for_data() -> None:
    words = torch.empty(100, dtype=torch.int64)
    fill_sentinel(words)
    wrong = find_mismatched_words(words, derive_seed(1))
    assert wrong
    assert wrong.words == 100


def test_seeds_differ_by_what_and_by_order() -> None:
    seeds = [derive_seed(), derive_seed(0), derive_seed(0, 0), derive_seed(1), derive_seed(1, 2), derive_seed(2, 1)]
    assert len(set(seeds)) == len(seeds)


@given(st.integers(1, 64), st.integers(0, 70))
def test_bits_of_ranks_lie_side_by_side_and_change_places(ranks: int, turn: int) -> None:
    bits = [compute_own_bits(rank, ranks, turn) for rank in range(ranks)]
    assert sum(bits) == sum(compute_own_bits(rank, ranks) for rank in range(ranks)) <= ALL_BITS
    assert all(bits)
    assert [find_bit_senders(each, ranks, turn) for each in bits] == [(rank,) for rank in range(ranks)]
    assert find_bit_senders(sum(bits), ranks, turn) == tuple(range(ranks))
    assert ranks == 1 or bits != [compute_own_bits(rank, ranks, turn + 1) for rank in range(ranks)]

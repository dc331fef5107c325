from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks.collective_ops import own_bits, senders_of
from preflight.checks.hashed_words import fill, hashed, poison, seed_of, wrong_words
from preflight.kernels.patterns import ALL_BITS, HASH, Pattern, expected

pytestmark = pytest.mark.torch
SEEDS = st.integers(0, ALL_BITS)


@given(SEEDS, st.integers(0, 1 << 30), SEEDS)
def test_words_are_those_of_the_pure_pattern(seed: int, first: int, keep: int) -> None:
    words = [word & ALL_BITS for word in hashed(seed, first, 5, "cpu", keep).tolist()]
    assert words == [expected(Pattern("", HASH, seed=seed), first + n) & keep for n in range(5)]


@given(SEEDS, st.data())
def test_every_flipped_bit_is_found_where_it_is(seed: int, data: st.DataObject) -> None:
    words = torch.empty(257, dtype=torch.int64)
    fill(words, seed)
    assert wrong_words(words, seed) is None
    flips = data.draw(st.dictionaries(st.integers(0, 256), st.integers(0, 62), min_size=1, max_size=9))
    for place, bit in flips.items():
        words[place] ^= 1 << bit
    wrong = wrong_words(words, seed)
    assert wrong
    assert (wrong.words, wrong.first) == (len(flips), min(flips))
    assert wrong.bits == sum(1 << bit for bit in set(flips.values()))
    assert wrong.wanted ^ wrong.found == 1 << flips[min(flips)]


def test_nothing_received_is_not_mistaken_for_data() -> None:
    words = torch.empty(100, dtype=torch.int64)
    poison(words)
    wrong = wrong_words(words, seed_of(1))
    assert wrong
    assert wrong.words == 100


def test_seeds_differ_by_what_and_by_order() -> None:
    seeds = [seed_of(), seed_of(0), seed_of(0, 0), seed_of(1), seed_of(1, 2), seed_of(2, 1)]
    assert len(set(seeds)) == len(seeds)


@given(st.integers(1, 64), st.integers(0, 70))
def test_bits_of_ranks_lie_side_by_side_and_change_places(ranks: int, turn: int) -> None:
    bits = [own_bits(rank, ranks, turn) for rank in range(ranks)]
    assert sum(bits) == sum(own_bits(rank, ranks) for rank in range(ranks)) <= ALL_BITS
    assert all(bits)
    assert [senders_of(each, ranks, turn) for each in bits] == [(rank,) for rank in range(ranks)]
    assert senders_of(sum(bits), ranks, turn) == tuple(range(ranks))
    assert ranks == 1 or bits != [own_bits(rank, ranks, turn + 1) for rank in range(ranks)]

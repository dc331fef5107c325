"""Test data for links that both ends can compute, so that received words are checked against the intended ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_patterns import ALL_BITS, GOLDEN, MIX_1, MIX_2, splitmix

WORD_BYTES = 8
_BLOCK_WORDS = 1 << 22  # at a time, so that temporary memory is megabytes even for gigabytes of data
_POISON = 0x5AFE_C0DE_DEAD_BEEF  # content of a receive buffer before any data arrives


class WordMismatch(NamedTuple):
    """How received words differ: count, position, expected and actual value of the first, and every bit that was ever wrong."""

    words: int
    first: int
    wanted: int
    found: int
    bits: int

    def sentence(self) -> str:
        """A description without the ends of the link."""
        return (
            f"{self.words} wrong words, first word {self.first}: {self.wanted:#018x} expected, {self.found:#018x} found; "
            f"wrong bits {self.bits:#018x}"
        )


def derive_seed(*parts: int) -> int:
    """One seed from several numbers; their order matters."""
    seed = 0
    for part in parts:
        seed = splitmix((seed + (part + 1) * GOLDEN) & ALL_BITS)
    return seed


def hash_word_sequence(seed: int, first: int, words: int, device: str, keep: int = ALL_BITS) -> Any:
    """Words `first` to `first` + `words` of the sequence of `seed`, as int64[words]; only the bits in `keep`."""
    state = torch.arange(first + 1, first + words + 1, dtype=torch.int64, device=device)
    state.mul_(_to_signed(GOLDEN)).add_(_to_signed(seed))
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        state.bitwise_xor_(_shift_right_logical(state, shift)).mul_(_to_signed(factor))
    state.bitwise_xor_(_shift_right_logical(state, 31))
    return state if keep == ALL_BITS else state.bitwise_and_(_to_signed(keep))


def fill_words(words: Any, seed: int, keep: int = ALL_BITS) -> None:
    """Write the sequence of `seed` into a one-dimensional int64 tensor."""
    for first in range(0, words.numel(), _BLOCK_WORDS):
        block = words[first : first + _BLOCK_WORDS]
        block.copy_(hash_word_sequence(seed, first, block.numel(), words.device, keep))


def fill_sentinel(words: Any) -> None:
    """Overwrite the buffer, so that old data cannot pass as received."""
    words.fill_(_to_signed(_POISON))


def find_mismatched_words(words: Any, seed: int, keep: int = ALL_BITS) -> WordMismatch | None:
    """How `words` differ from the sequence of `seed`; None if they match."""
    count, first, bits = 0, -1, 0
    for start in range(0, words.numel(), _BLOCK_WORDS):
        block = words[start : start + _BLOCK_WORDS]
        differing = hash_word_sequence(seed, start, block.numel(), words.device, keep).bitwise_xor_(block)
        if not (here := int(differing.count_nonzero())):
            continue
        count += here
        places = differing.nonzero().flatten()
        first = start + int(places[0]) if first < 0 else first
        bits |= _or_all_words(differing[places])
    if not count:
        return None
    wanted = int(hash_word_sequence(seed, first, 1, words.device, keep)[0]) & ALL_BITS
    return WordMismatch(count, first, wanted, int(words[first]) & ALL_BITS, bits)


def _or_all_words(differing: Any) -> int:
    """Bits that are set in any word. In halves, because torch has no 'or' over a dimension."""
    while differing.numel() > 1:
        if differing.numel() % 2:
            differing = torch.cat([differing, differing[-1:]])
        differing = differing[0::2] | differing[1::2]
    return int(differing[0]) & ALL_BITS


def _shift_right_logical(state: Any, shift: int) -> Any:
    """Logical right shift, which torch lacks for signed words."""
    return state.bitwise_right_shift(shift).bitwise_and_((1 << (64 - shift)) - 1)


def _to_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word

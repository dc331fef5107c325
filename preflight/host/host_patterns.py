"""Patterns for host memory and files: write, verify, list differences. Random words, never only zeros or ones.

A block's words are one tile of random words, XORed with the block's key. So neighbouring words within a tile differ, and all
blocks differ: a block returned in place of another is detected.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]

WORD_BYTES = 8
TILE_WORDS = 1 << 17  # 1 MiB: stays in a core's cache, so that memory is the bottleneck
_GOLDEN = 0x9E3779B97F4A7C15
_ALL = (1 << 64) - 1


class WrongWord(msgspec.Struct, frozen=True):
    """One wrong word. `offset` in bytes, from the start of the checked area."""

    offset: int
    expected: int
    found: int

    def __str__(self) -> str:
        """``0x000000000010: 0x… expected, 0x… read``."""
        return f"{self.offset:#014x}: {self.expected:#018x} expected, {self.found:#018x} read"


def build_tile(seed: int) -> Words:
    """One tile of random words."""
    return np.random.default_rng(seed).integers(0, 1 << 64, TILE_WORDS, dtype=np.uint64)


def derive_block_key(pattern: int, block: int) -> int:
    """A block's key. Patterns come in pairs; the second inverts every bit of the first."""
    mixed = ((pattern // 2 << 40) + block + 1) * _GOLDEN & _ALL
    return mixed ^ _ALL if pattern % 2 else mixed


def write_block(block: Words, of: Words, mark: int) -> None:
    """Fill a block with the tile `of` under the key `mark`. A block may end within a tile."""
    for start in range(0, block.size, of.size):
        part = block[start : start + of.size]
        np.bitwise_xor(of[: part.size], np.uint64(mark), out=part)


def find_wrong_words(
    block: Words, of: Words, mark: int, scratch: Words, limit: int
) -> tuple[int, tuple[WrongWord, ...]]:
    """The number of words that differ from `write_block`, and the first `limit` of them. `scratch` has the size of a tile."""
    count = 0
    listed: list[WrongWord] = []
    for start in range(0, block.size, of.size):
        part = block[start : start + of.size]
        rest = scratch[: part.size]
        np.bitwise_xor(part, of[: part.size], out=rest)
        differing = rest != np.uint64(mark)
        if not differing.any():
            continue
        count += int(np.count_nonzero(differing))
        for place in np.flatnonzero(differing)[: limit - len(listed)].tolist():
            offset, expected = (start + place) * WORD_BYTES, int(of[place]) ^ mark
            listed.append(WrongWord(offset, expected, int(rest[place]) ^ int(of[place])))
    return count, tuple(listed)


def view_as_words(memory: Any) -> Words:
    """A buffer as words, without copying."""
    return np.frombuffer(memory, dtype=np.uint64)

"""Which elements of an output have wrong bits: place, bits, tile, and how often each bit was flipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from preflight.kernels.memory_patterns import ALL_BITS
from preflight.kernels.tensor_digests import OutputDigests, view_as_int64

TILE = 128  # in which wrong elements are grouped; the library's own tiles are not published


class WrongElement(NamedTuple):
    """One element of an output with other bits than an output made afterwards; bits are unsigned."""

    repeat: int
    row: int
    column: int
    actual: int
    right: int

    @property
    def flipped(self) -> int:
        """The bits that are different."""
        return self.actual ^ self.right

    @property
    def tile(self) -> tuple[int, int]:
        """Row and column of the square of `TILE`² elements that it lies in."""
        return self.row // TILE, self.column // TILE

    def __str__(self) -> str:
        return (
            f"repeat {self.repeat} [{self.row}, {self.column}]: bits {self.actual:#x}, {self.right:#x} expected, "
            f"{self.flipped:#x} flipped"
        )


def find_wrong_elements(digests: OutputDigests, fresh: Any) -> list[WrongElement]:
    """Compare the saved blocks element by element with `fresh`, an output made now."""
    words, size_bytes, width = view_as_int64(fresh), fresh.element_size(), fresh.shape[1]
    found = []
    for repeat, block, kept in digests.differing():
        first = block * digests.block_words
        wanted = [word & ALL_BITS for word in words[first : first + digests.block_words].tolist()]
        for number, (was, ought) in enumerate(zip(kept, wanted, strict=False)):
            for place, actual, right in find_differing_elements(was, ought, size_bytes):
                row, column = divmod((first + number) * (8 // size_bytes) + place, width)
                found.append(WrongElement(repeat, row, column, actual, right))
    return found


def find_differing_elements(was: int, ought: int, size_bytes: int) -> list[tuple[int, int, int]]:
    """Which elements of one 64-bit word differ, lowest first: place, bits there, bits wanted."""
    if was == ought:
        return []
    width = 8 * size_bytes
    every = (
        (place, *(word >> place * width & ((1 << width) - 1) for word in (was, ought)))
        for place in range(8 // size_bytes)
    )
    return [(place, actual, right) for place, actual, right in every if actual != right]


def format_bit_counts(flipped: Iterable[int]) -> str:
    """How often each bit was flipped, lowest bit first: ``3: 1, 14: 2``."""
    counted = Counter(bit for word in flipped for bit in range(64) if word >> bit & 1)
    return ", ".join(f"{bit}: {counted[bit]}" for bit in sorted(counted))

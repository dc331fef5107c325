"""Memory under test, its wrong words, and reading them again. No torch and no Triton."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from preflight.kernels.memory_patterns import ALL_BITS, Pattern, compute_expected_word

LISTED = 1024
WORD_BYTES = 8
SMALL_PAGE, LARGE_PAGE = 64 << 10, 2 << 20


class Piece(NamedTuple):
    """One allocation, int64[words] and contiguous; `base` is the address of its first word, in words."""

    memory: Any
    base: int = 0


class WrongWord(NamedTuple):
    """One wrong word. All numbers are unsigned; `again` was read after the pass."""

    piece: int
    address: int
    offset_bytes: int
    expected: int
    actual: int
    again: int

    @property
    def kind(self) -> str:
        """`stuck`: the same wrong value again; `transient`: correct on the second read; `unstable`: another value."""
        if self.again == self.actual:
            return "stuck"
        return "transient" if self.again == self.expected else "unstable"

    @property
    def page(self) -> str:
        """The virtual pages of the word, counted from the start of its allocation."""
        small, large = self.offset_bytes // SMALL_PAGE, self.offset_bytes // LARGE_PAGE
        return f"virtual page {small} of 64 KiB, {large} of 2 MiB"

    def __str__(self) -> str:
        flipped = self.expected ^ self.actual
        bits = [bit for bit in range(64) if flipped >> bit & 1]
        shown = ", ".join(map(str, bits)) if len(bits) <= 8 else f"{len(bits)} of them"
        return (
            f"allocation {self.piece} + {self.offset_bytes:#x}: {self.expected:#018x} expected, {self.actual:#018x} read, "
            f"{self.again:#018x} read again ({self.kind}); bits {shown}; {self.page}"
        )


class Errors(NamedTuple):
    """The errors of one pass: number of wrong reads, how often each of 64 bits was wrong, and the first listed words."""

    pattern: str
    wrong: int
    bits: tuple[int, ...]
    listed: tuple[WrongWord, ...]

    @property
    def sentence(self) -> str:
        """The number of errors, and the first in full; none is listed if all were correct when read again."""
        counted = f"{self.wrong} wrong words"
        if not self.listed:
            return f"{counted}, correct when read again"
        word = self.listed[0]
        return f"{counted}, first at byte {word.offset_bytes:#x}: {word.expected:#018x} written, {word.actual:#018x} read ({word.kind})"


def reread_words(pieces: Sequence[Piece], pattern: Pattern, found: Sequence[tuple[int, int]]) -> tuple[WrongWord, ...]:
    """Read the words at `found` (address, value as a signed number) once more, each once, by piece and address."""
    return tuple(sorted(_reread_word(pieces, pattern, *each) for each in dict(found).items()))


def _reread_word(pieces: Sequence[Piece], pattern: Pattern, address: int, actual: int) -> WrongWord:
    number = next(n for n, piece in enumerate(pieces) if 0 <= address - piece.base < piece.memory.numel())
    word = address - pieces[number].base
    again = int(pieces[number].memory[word]) & ALL_BITS
    return WrongWord(
        number, address, word * WORD_BYTES, compute_expected_word(pattern, address), actual & ALL_BITS, again
    )


def signed(word: int) -> int:
    """The same 64 bits, as torch and the kernels' arguments have them."""
    return word - (1 << 64) if word >> 63 else word

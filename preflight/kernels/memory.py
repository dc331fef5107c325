"""Memory under test: launching the passes, and telling what they found in words a person can follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from preflight.kernels.passes import verify_and_write_kernel, verify_kernel, write_kernel
from preflight.kernels.patterns import ALL_BITS, Pattern, expected, step

BLOCK_WORDS = 1024  # at 2048 the compiler gives a verifying program twice the registers, and half of them run at once
LISTED = 1024
WORD_BYTES = 8
SMALL_PAGE, LARGE_PAGE = 64 << 10, 2 << 20


class Piece(NamedTuple):
    """One allocation, int64[words] and contiguous; `base` is the address of its first word, in words."""

    memory: Any
    base: int = 0


class WrongWord(NamedTuple):
    """One word that was not what it ought to be. All numbers as unsigned; `again` was read after the pass."""

    piece: int
    address: int
    offset_bytes: int
    expected: int
    actual: int
    again: int

    @property
    def kind(self) -> str:
        """`stuck`: it is still what was read; `transient`: it was read wrongly once; `unstable`: neither."""
        if self.again == self.actual:
            return "stuck"
        return "transient" if self.again == self.expected else "unstable"

    def __str__(self) -> str:
        flipped = self.expected ^ self.actual
        bits = [bit for bit in range(64) if flipped >> bit & 1]
        shown = ", ".join(map(str, bits)) if len(bits) <= 8 else f"{len(bits)} of them"
        return (
            f"allocation {self.piece} + {self.offset_bytes:#x}: {self.expected:#018x} expected, {self.actual:#018x} read, "
            f"{self.again:#018x} read again ({self.kind}); bits {shown}; virtual page {self.offset_bytes // SMALL_PAGE} of "
            f"64 KiB, {self.offset_bytes // LARGE_PAGE} of 2 MiB"
        )


class Errors(NamedTuple):
    """What one pass found: all wrong words counted, how often each of 64 bits was wrong, and the first that were listed."""

    pattern: str
    wrong: int
    bits: tuple[int, ...]
    listed: tuple[WrongWord, ...]


class Pass:
    """Verifies pieces against one pattern, and writes `following` in the same pass if there is one.

    Launch on every piece, then ask for `errors` once: that waits for the device.
    """

    def __init__(self, pattern: Pattern, device: str, following: Pattern | None = None) -> None:
        self.pattern, self.following = pattern, following
        self._counters = torch.zeros(65, dtype=torch.int64, device=device)
        self._listed = torch.zeros((2, LISTED), dtype=torch.int64, device=device)

    def launch(self, piece: Piece, block_words: int = BLOCK_WORDS) -> None:
        """Go over one piece."""
        words = piece.memory.numel()
        if not words:
            return
        blocks = -(-words // block_words)
        found = (self._counters, self._listed)
        place = (words, piece.base, blocks, step(self.pattern.order, blocks))
        if self.following is None:
            verify_kernel[(blocks,)](
                piece.memory,
                *found,
                *place,
                *_numbers(self.pattern),
                KIND=self.pattern.kind,
                BLOCK=block_words,
                ROOM=LISTED,
            )
            return
        verify_and_write_kernel[(blocks,)](
            piece.memory,
            *found,
            *place,
            *_numbers(self.pattern),
            *_numbers(self.following),
            KIND=self.pattern.kind,
            KIND_NEXT=self.following.kind,
            BLOCK=block_words,
            ROOM=LISTED,
        )

    def errors(self, pieces: Sequence[Piece]) -> Errors:
        """What was found. Listed words are read again here, when the whole pass has gone through the caches."""
        wrong, *bits = self._counters.tolist()
        addresses, actual = (row[: min(wrong, LISTED)].tolist() for row in self._listed)
        listed = sorted(self._again(pieces, *each) for each in zip(addresses, actual, strict=True))
        return Errors(self.pattern.name, wrong, tuple(bits), tuple(listed))

    def _again(self, pieces: Sequence[Piece], address: int, actual: int) -> WrongWord:
        number = next(n for n, piece in enumerate(pieces) if 0 <= address - piece.base < piece.memory.numel())
        word = address - pieces[number].base
        again = int(pieces[number].memory[word]) & ALL_BITS
        wanted = expected(self.pattern, address)
        return WrongWord(number, address, word * WORD_BYTES, wanted, actual & ALL_BITS, again)


def write(piece: Piece, pattern: Pattern, block_words: int = BLOCK_WORDS) -> None:
    """Write `pattern` into one piece; returns before the device has done it."""
    words = piece.memory.numel()
    if not words:
        return
    blocks = -(-words // block_words)
    place = (words, piece.base, blocks, step(pattern.order, blocks))
    write_kernel[(blocks,)](piece.memory, *place, *_numbers(pattern), KIND=pattern.kind, BLOCK=block_words)


def verify(pieces: Sequence[Piece], pattern: Pattern) -> Errors:
    """Compare all pieces with `pattern`; waits for the answer."""
    going = Pass(pattern, str(pieces[0].memory.device))
    for piece in pieces:
        going.launch(piece)
    return going.errors(pieces)


def sweep(pieces: Sequence[Piece], patterns: Sequence[Pattern]) -> list[Errors]:
    """Write each pattern over all pieces and verify it while the next is written: n + 1 passes for n patterns.

    One entry for each pattern that did not hold. A pass with errors leaves its blocks as they were, so what follows
    it is written anew and no error is reported twice.
    """
    device = str(pieces[0].memory.device)
    for piece in pieces:
        write(piece, patterns[0])
    found = []
    for pattern, following in zip(patterns, [*patterns[1:], None], strict=True):
        going = Pass(pattern, device, following)
        for piece in pieces:
            going.launch(piece)
        errors = going.errors(pieces)
        if errors.wrong:
            found.append(errors)
            for piece in pieces if following else ():
                write(piece, following or pattern)
    return found


def retained(pieces: Sequence[Piece], pattern: Pattern, wait: Callable[[], None]) -> Errors:
    """Write, `wait` (work that heats the card, for as long as its cells should hold), then verify."""
    for piece in pieces:
        write(piece, pattern)
    wait()
    return verify(pieces, pattern)


def _numbers(pattern: Pattern) -> tuple[int, int, int, int]:
    """What a kernel needs of a pattern, as signed 64-bit numbers."""
    return signed(pattern.seed), pattern.shift, signed(pattern.keep), signed(pattern.flip)


def signed(word: int) -> int:
    """The same 64 bits, as torch and the kernels' arguments have them."""
    return word - (1 << 64) if word >> 63 else word

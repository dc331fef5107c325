"""Copies, fills and sums over the memory under test, with verification of the moved data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from preflight.checks.memory_allocation import AllocatedMemory
from preflight.kernels.memory_errors import WORD_BYTES, Errors, Piece, signed
from preflight.kernels.memory_patterns import (
    ADDRESS,
    ALL_BITS,
    CONSTANT,
    GATE,
    GOLDEN,
    Pattern,
    reseed_patterns,
    splitmix,
    sum_address_pattern,
)
from preflight.kernels.memory_sweeps import verify_pieces

SLOW_TIMES = 5
FLIPPED_BIT = 33


class TransferResult(NamedTuple):
    """One kind of traffic, once: bytes read and written, seconds, and errors."""

    moved_bytes: int
    seconds: float
    errors: Errors
    misread: str = ""

    @property
    def wrong(self) -> bool:
        """Whether there were errors."""
        return bool(self.errors.wrong or self.misread)


class MemoryTraffic:
    """Traffic over one memory area, each kind over all of it."""

    def __init__(self, room: AllocatedMemory, fault: str) -> None:
        self._room = room
        self._fault = fault
        halves = [(piece, piece.memory.numel() // 2) for piece in room.pieces]
        self._sources = [Piece(piece.memory[:half], piece.base) for piece, half in halves]
        # A target uses its source's addresses, so that a correct copy holds the same words.
        self._targets = [Piece(piece.memory[half : 2 * half], piece.base) for piece, half in halves]

    def copy(self, number: int) -> TransferResult:
        """Copy one half of memory to the other; read and written bytes both count."""
        (words,) = reseed_patterns(GATE[1:2], number)
        for source, target in zip(self._sources, self._targets, strict=True):
            self._room.way.write(source, words)
            self._room.way.write(target, words.inverted())
        seconds, _ = self._room.timed(self._copy)
        return TransferResult(2 * _count_bytes(self._targets), seconds, self._verified(self._targets, words))

    def write(self, number: int) -> TransferResult:
        """Fill all memory with one random word, over other data."""
        word = Pattern("fill", CONSTANT, seed=splitmix((number + 1) * GOLDEN & ALL_BITS))

        def fill() -> None:
            for piece in self._room.pieces:
                piece.memory.fill_(signed(word.seed))

        seconds, _ = self._room.timed(fill)
        return TransferResult(_count_bytes(self._room.pieces), seconds, self._verified(self._room.pieces, word))

    def read(self, number: int) -> TransferResult:
        """Sum all memory: addresses with some bits flipped, so that the sum is known."""
        words = Pattern("addresses", ADDRESS, flip=splitmix((number + 1) * GOLDEN & ALL_BITS))
        for piece in self._room.pieces:
            self._room.way.write(piece, words)
        if self._fault == "wrong_read":
            self._flip(self._room.pieces)
        seconds, sums = self._room.timed(lambda: [piece.memory.sum() for piece in self._room.pieces])
        if self._fault == "wrong_read":
            self._flip(self._room.pieces)
        misread = "; ".join(filter(None, map(_compare_sum, self._room.pieces, sums, [words] * len(sums))))
        return TransferResult(
            _count_bytes(self._room.pieces), seconds, self._verified(self._room.pieces, words), misread
        )

    def _copy(self) -> None:
        skipped = self._fault == "skipped_copy"
        for _ in range(SLOW_TIMES if self._fault == "slow_copy" else 1):
            for source, target in zip(self._sources, self._targets, strict=True):
                words = source.memory.numel() * 7 // 8 if skipped else source.memory.numel()
                target.memory[:words].copy_(source.memory[:words])
        if self._fault == "wrong_copy":
            self._flip(self._targets)

    def _flip(self, pieces: Sequence[Piece]) -> None:
        memory = pieces[-1].memory
        memory[memory.numel() // 3] ^= 1 << FLIPPED_BIT

    def _verified(self, pieces: Sequence[Piece], pattern: Pattern) -> Errors:
        return verify_pieces(self._room.way, pieces, pattern)


KINDS: dict[str, Callable[[MemoryTraffic, int], TransferResult]] = {
    "copy_rate": MemoryTraffic.copy,
    "write_rate": MemoryTraffic.write,
    "read_rate": MemoryTraffic.read,
}


def _compare_sum(piece: Piece, summed: Any, pattern: Pattern) -> str:
    read, known = int(summed) & ALL_BITS, sum_address_pattern(pattern, piece.base, piece.memory.numel())
    if read == known:
        return ""
    return f"the sum of {piece.memory.numel()} words from {piece.base * WORD_BYTES:#x} is {read:#x}, not {known:#x}"


def _count_bytes(pieces: Sequence[Piece]) -> int:
    return sum(int(piece.memory.numel()) for piece in pieces) * WORD_BYTES

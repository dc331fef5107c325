"""Moving known words: copies, fills and sums over the memory under test, and whether what they moved is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from preflight.checks.memory_room import Room
from preflight.kernels.patterns import ADDRESS, ALL_BITS, CONSTANT, GATE, GOLDEN, Pattern, reseeded, splitmix, total
from preflight.kernels.sweeps import verify
from preflight.kernels.wrong_words import WORD_BYTES, Errors, Piece, signed

SLOW_TIMES = 5
FLIPPED_BIT = 33


class Moved(NamedTuple):
    """One kind of traffic, once: bytes read and written, seconds, and what was wrong with it."""

    moved_bytes: int
    seconds: float
    errors: Errors
    misread: str = ""

    @property
    def wrong(self) -> bool:
        """Whether anything was."""
        return bool(self.errors.wrong or self.misread)


class Traffic:
    """The traffic over one room, each kind over all of it."""

    def __init__(self, room: Room, fault: str) -> None:
        self._room = room
        self._fault = fault
        halves = [(piece, piece.memory.numel() // 2) for piece in room.pieces]
        self._sources = [Piece(piece.memory[:half], piece.base) for piece, half in halves]
        # A target has its source's addresses: so it holds the same words when it is a copy.
        self._targets = [Piece(piece.memory[half : 2 * half], piece.base) for piece, half in halves]

    def copy(self, number: int) -> Moved:
        """One half of memory copied to the other; read and written bytes both count."""
        (words,) = reseeded(GATE[1:2], number)
        for source, target in zip(self._sources, self._targets, strict=True):
            self._room.way.write(source, words)
            self._room.way.write(target, words.inverted())
        seconds, _ = self._room.timed(self._copy)
        return Moved(2 * _bytes(self._targets), seconds, self._verified(self._targets, words))

    def write(self, number: int) -> Moved:
        """All memory filled with one random word, over the words that were there."""
        word = Pattern("fill", CONSTANT, seed=splitmix((number + 1) * GOLDEN & ALL_BITS))

        def fill() -> None:
            for piece in self._room.pieces:
                piece.memory.fill_(signed(word.seed))

        seconds, _ = self._room.timed(fill)
        return Moved(_bytes(self._room.pieces), seconds, self._verified(self._room.pieces, word))

    def read(self, number: int) -> Moved:
        """All memory summed up: addresses, of which some bits are flipped, so that the sum is known beforehand."""
        words = Pattern("addresses", ADDRESS, flip=splitmix((number + 1) * GOLDEN & ALL_BITS))
        for piece in self._room.pieces:
            self._room.way.write(piece, words)
        if self._fault == "wrong_read":
            self._flip(self._room.pieces)
        seconds, sums = self._room.timed(lambda: [piece.memory.sum() for piece in self._room.pieces])
        if self._fault == "wrong_read":
            self._flip(self._room.pieces)
        misread = "; ".join(filter(None, map(_misread, self._room.pieces, sums, [words] * len(sums))))
        return Moved(_bytes(self._room.pieces), seconds, self._verified(self._room.pieces, words), misread)

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
        return verify(self._room.way, pieces, pattern)


KINDS: dict[str, Callable[[Traffic, int], Moved]] = {
    "copy_rate": Traffic.copy,
    "write_rate": Traffic.write,
    "read_rate": Traffic.read,
}


def _misread(piece: Piece, summed: Any, pattern: Pattern) -> str:
    read, known = int(summed) & ALL_BITS, total(pattern, piece.base, piece.memory.numel())
    if read == known:
        return ""
    return f"the sum of {piece.memory.numel()} words from {piece.base * WORD_BYTES:#x} is {read:#x}, not {known:#x}"


def _bytes(pieces: Sequence[Piece]) -> int:
    return sum(int(piece.memory.numel()) for piece in pieces) * WORD_BYTES

"""Memory passes with Triton kernels, at the memory's full speed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from preflight.kernels.memory_errors import LISTED, WORD_BYTES, Errors, Piece, WrongWord, reread_words, signed
from preflight.kernels.memory_kernels import verify_and_write_kernel, verify_kernel, write_kernel
from preflight.kernels.memory_patterns import Pattern, choose_program_stride

__all__ = [
    "BLOCK_WORDS",
    "LISTED",
    "WORD_BYTES",
    "Errors",
    "Pass",
    "Piece",
    "TritonWay",
    "WrongWord",
    "signed",
    "verify",
    "write",
]

BLOCK_WORDS = 1024  # at 2048 the compiler gives a verifying program twice the registers, and half of them run at once


class Pass:
    """Verifies pieces against one pattern, and writes `following` in the same pass if there is one.

    Launch on every piece, then ask for `errors` once: that waits for the device.
    """

    def __init__(self, pattern: Pattern, device: str, following: Pattern | None = None) -> None:
        self.pattern, self.following = pattern, following
        self._counters = torch.zeros(65, dtype=torch.int64, device=device)
        self._listed = torch.zeros((2, LISTED), dtype=torch.int64, device=device)

    def launch(self, piece: Piece, block_words: int = BLOCK_WORDS, *, repeats: int = 1) -> None:
        """Go over one piece; `repeats` times in one launch, if nothing is written."""
        words = piece.memory.numel()
        if not words:
            return
        blocks = -(-words // block_words)
        found = (self._counters, self._listed)
        place = (words, piece.base, blocks, choose_program_stride(self.pattern.order, blocks))
        if self.following is None:
            verify_kernel[(blocks * repeats,)](  # turns beyond the last block begin again at the first
                piece.memory,
                *found,
                *place,
                *_build_kernel_arguments(self.pattern),
                KIND=self.pattern.kind,
                BLOCK=block_words,
                ROOM=LISTED,
            )
            return
        verify_and_write_kernel[(blocks,)](
            piece.memory,
            *found,
            *place,
            *_build_kernel_arguments(self.pattern),
            *_build_kernel_arguments(self.following),
            KIND=self.pattern.kind,
            KIND_NEXT=self.following.kind,
            BLOCK=block_words,
            ROOM=LISTED,
        )

    def errors(self, pieces: Sequence[Piece]) -> Errors:
        """The errors found. Listed words are read again here, after the whole pass has gone through the caches."""
        wrong, *bits = self._counters.tolist()
        addresses, actual = (row[: min(wrong, LISTED)].tolist() for row in self._listed)
        listed = reread_words(pieces, self.pattern, list(zip(addresses, actual, strict=True)))
        return Errors(self.pattern.name, wrong, tuple(bits), listed)


def write(piece: Piece, pattern: Pattern, block_words: int = BLOCK_WORDS) -> None:
    """Write `pattern` into one piece; returns before the device has done it."""
    words = piece.memory.numel()
    if not words:
        return
    blocks = -(-words // block_words)
    place = (words, piece.base, blocks, choose_program_stride(pattern.order, blocks))
    write_kernel[(blocks,)](
        piece.memory, *place, *_build_kernel_arguments(pattern), KIND=pattern.kind, BLOCK=block_words
    )


def verify(pieces: Sequence[Piece], pattern: Pattern) -> Errors:
    """Compare all pieces with `pattern`; waits for the answer."""
    going = Pass(pattern, str(pieces[0].memory.device))
    for piece in pieces:
        going.launch(piece)
    return going.errors(pieces)


class TritonWay:
    """Each word is written and verified by one program of a kernel; see `preflight.kernels.memory_kernels`."""

    name = "triton"

    def write(self, piece: Piece, pattern: Pattern) -> None:
        """Write `pattern` into one piece; returns before the device has done it."""
        write(piece, pattern)

    def begin(self, pattern: Pattern, device: str, following: Pattern | None = None) -> Pass:
        """A pass that verifies `pattern`, and writes `following` to correct blocks."""
        return Pass(pattern, device, following)


def _build_kernel_arguments(pattern: Pattern) -> tuple[int, int, int, int]:
    """What a kernel needs of a pattern, as signed 64-bit numbers."""
    return signed(pattern.seed), pattern.shift, signed(pattern.keep), signed(pattern.flip)

"""Memory passes with Triton kernels, at the memory's full speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import LISTED, WORD_BYTES, Errors, Piece, WrongWord, reread_words, signed
from preflight.kernels.memory_kernels import count_kernel, verify_and_write_kernel, verify_kernel, write_kernel
from preflight.kernels.memory_patterns import SCATTERED, Pattern, place_programs

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
KEPT = 64  # wrong reads of a block whose words are set aside


class WrongBlocks(NamedTuple):
    """Where the kernels set wrong blocks of one piece aside; see `memory_kernels.verify_kernel`."""

    piece: Piece
    block_words: int
    notes: Any
    kept: Any
    times: Any

    def rows(self) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Data, rows of it, their blocks, and how often each counts: what was kept, then from memory what was not."""
        slots = min(int(self.notes[0]), KEPT)
        kept = self.notes[1 : 1 + slots]
        yield self.kept, torch.arange(slots, device=kept.device), kept, torch.ones_like(kept)
        others = self.times.long().scatter_add(0, kept, torch.full_like(kept, -1))
        blocks = others.nonzero().flatten()
        if blocks.numel():
            yield self.piece.memory, blocks, blocks, others[blocks]


class Pass:
    """Verifies pieces against one pattern, and writes `following` in the same pass if there is one.

    Launch on every piece, then ask for `errors` once: that waits for the device.
    """

    def __init__(self, pattern: Pattern, device: str, following: Pattern | None = None) -> None:
        self.pattern, self.following, self.device = pattern, following, device
        self.launched: list[WrongBlocks] = []  # of each piece

    def launch(self, piece: Piece, block_words: int = BLOCK_WORDS, *, repeats: int = 1) -> None:
        """Go over one piece; `repeats` times in one launch, if nothing is written."""
        words = piece.memory.numel()
        if not words:
            return
        blocks = -(-words // block_words)
        notes = torch.zeros(1 + KEPT, dtype=torch.int64, device=self.device)
        kept = torch.empty((KEPT, block_words), dtype=torch.int64, device=self.device)
        times = torch.zeros(blocks, dtype=torch.int32, device=self.device)
        self.launched.append(WrongBlocks(piece, block_words, notes, kept, times))
        wrong = (piece.memory, notes, kept, times)
        place, settings = _build_place(piece, self.pattern.order, block_words)
        if self.following is None:
            verify_kernel[(blocks, repeats)](
                *wrong, *place, *_build_kernel_arguments(self.pattern), KIND=self.pattern.kind, KEPT=KEPT, **settings
            )
            return
        verify_and_write_kernel[(blocks,)](
            *wrong,
            *place,
            *_build_kernel_arguments(self.pattern),
            *_build_kernel_arguments(self.following),
            KIND=self.pattern.kind,
            KIND_NEXT=self.following.kind,
            KEPT=KEPT,
            **settings,
        )

    def errors(self, pieces: Sequence[Piece]) -> Errors:
        """The errors found. Listed words are read again here, after the whole pass has gone through the caches."""
        counters = torch.zeros(66, dtype=torch.int64, device=self.device)
        listed = torch.zeros((2, LISTED), dtype=torch.int64, device=self.device)
        heads = [wrong.notes[:1] for wrong in self.launched] or [counters[:1]]
        if any(reads := torch.cat(heads).tolist()):
            for wrong, many in zip(self.launched, reads, strict=True):
                if many:
                    self._count(wrong, counters, listed)
        total, known, *bits = counters.tolist()
        addresses, actual = (row[: min(known, LISTED)].tolist() for row in listed)
        again = reread_words(pieces, self.pattern, list(zip(addresses, actual, strict=True)))
        return Errors(self.pattern.name, total, tuple(bits), again)

    def _count(self, wrong: WrongBlocks, counters: Any, listed: Any) -> None:
        for data, rows, blocks, times in wrong.rows():
            count_kernel[(len(rows),)](
                *(data, rows, blocks, times, counters, listed),
                wrong.piece.memory.numel(),
                wrong.piece.base,
                *_build_kernel_arguments(self.pattern),
                KIND=self.pattern.kind,
                BLOCK=wrong.block_words,
                ROOM=LISTED,
            )


def write(piece: Piece, pattern: Pattern, block_words: int = BLOCK_WORDS) -> None:
    """Write `pattern` into one piece; returns before the device has done it."""
    words = piece.memory.numel()
    if not words:
        return
    place, settings = _build_place(piece, pattern.order, block_words)
    write_kernel[(-(-words // block_words),)](
        piece.memory, *place, *_build_kernel_arguments(pattern), KIND=pattern.kind, **settings
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


def _build_place(piece: Piece, order: str, block_words: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Where a kernel works, and in which order: its numbers, and what it is compiled for."""
    words = piece.memory.numel()
    blocks = -(-words // block_words)
    settings = {"EVEN": words % block_words == 0, "SCATTERED": order == SCATTERED, "BLOCK": block_words}
    return (words, piece.base, blocks, *place_programs(order, blocks)), settings

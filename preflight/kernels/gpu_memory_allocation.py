"""Allocates nearly all free memory, in few pieces, with a reserve for other processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import WORD_BYTES, Piece
from vocabulary.text.plurals import format_count

RESERVE_FRACTION = 0.01
RESERVE_BYTES_MIN = 256 << 20
PIECE_BYTES_MIN = 64 << 20
PIECES_MAX = 64
_ROUND = 2 << 20  # the driver's allocation granularity


class TakenMemory(NamedTuple):
    """The pieces, and the share of the free memory."""

    pieces: list[Piece]
    free_bytes: int
    taken_bytes: int

    @property
    def coverage(self) -> float:
        """Allocated over free, 0 to 1."""
        return self.taken_bytes / self.free_bytes if self.free_bytes else 0.0

    def __str__(self) -> str:
        return (
            f"{self.taken_bytes / 2**30:.2f} of {self.free_bytes / 2**30:.2f} GiB free "
            f"({self.coverage:.1%}) in {format_count(len(self.pieces), 'piece')}"
        )


def compute_reserve_bytes(free_bytes: int) -> int:
    """The reserve: a hundredth, and at least 256 MiB, for the driver, kernels loaded later, and other processes."""
    return max(int(free_bytes * RESERVE_FRACTION), RESERVE_BYTES_MIN)


def allocate_pieces(
    free: Callable[[], int], allocate: Callable[[int], Any], smallest_bytes: int = PIECE_BYTES_MIN
) -> TakenMemory:
    """Take all but the reserve.

    `free` says how many bytes are; `allocate(words)` gives int64[words] or raises `torch.OutOfMemoryError`: then half is
    tried, down to `smallest_bytes`. A piece that leaves too little, because somebody else took memory, is given back.
    """
    free_at_first = free()
    reserve = compute_reserve_bytes(free_at_first)
    pieces: list[Piece] = []
    taken = 0
    size = _round_down(free_at_first - reserve)
    while size >= smallest_bytes and len(pieces) < PIECES_MAX:
        try:
            memory = allocate(size // WORD_BYTES)
        except torch.OutOfMemoryError:
            size = _round_down(size // 2)
            continue
        if free() < reserve - _ROUND:
            del memory
            size = _round_down(size // 2)
            continue
        pieces.append(Piece(memory, taken // WORD_BYTES))
        taken += size
        size = min(size, _round_down(free() - reserve))
    return TakenMemory(pieces, free_at_first, taken)


def allocate_gpu_memory(device: str) -> TakenMemory:
    """Nearly all free memory of one GPU. What torch's allocator keeps unused is given back first and counts as free."""
    torch.cuda.empty_cache()

    def free() -> int:
        torch.cuda.empty_cache()  # a piece just given back, or half of one that was refused
        return int(torch.cuda.mem_get_info(device)[0])

    return allocate_pieces(free, lambda words: torch.empty(words, dtype=torch.int64, device=device))


def _round_down(size: int) -> int:
    return size // _ROUND * _ROUND

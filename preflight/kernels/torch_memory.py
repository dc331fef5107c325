"""Memory passes with plain torch, for machines without Triton and for the host: slower, with the same words and results.

The expected words are computed beside the memory, a block at a time; a block that fits a cache costs little beside the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from preflight.kernels import memory_patterns as p
from preflight.kernels.memory_errors import LISTED, Errors, Piece, reread_words, signed
from preflight.kernels.memory_patterns import Pattern, choose_program_stride

HOST_BLOCK_WORDS = 1 << 16
GPU_BLOCK_WORDS = 1 << 21
_SPLITMIX = ((30, signed(p.MIX_1)), (27, signed(p.MIX_2)), (31, 1))


def fill_pattern(out: Any, pattern: Pattern, first: int, scratch: Any = None) -> None:
    """Write the words of `pattern` from the address `first` (in words) into int64 `out`. `scratch` is as long, or made."""
    convert_addresses(torch.arange(first, first + out.numel(), out=out), pattern, scratch)


def convert_addresses(out: Any, pattern: Pattern, scratch: Any = None) -> None:
    """Replace the addresses (in words) in int64 `out` by the words that `pattern` has there."""
    if pattern.kind == p.ADDRESS:
        out.mul_(8)
    elif pattern.kind == p.WALKING:
        out.add_(pattern.seed).bitwise_and_(63)
        torch.bitwise_left_shift(torch.ones_like(out), out, out=out)
    elif pattern.kind == p.CONSTANT:
        out.fill_(signed(pattern.seed))
    elif pattern.kind in {p.HASH, p.SPLITMIX}:
        fill = _fill_hash if pattern.kind == p.HASH else _fill_splitmix
        fill(out, pattern.seed, torch.empty_like(out) if scratch is None else scratch[: out.numel()])
    elif pattern.kind == p.CHECKER:
        out.bitwise_and_(1)
        torch.bitwise_left_shift(torch.full_like(out, p.EVEN_BITS), out, out=out)
    elif pattern.kind == p.MODULO:
        out.remainder_(p.MODULUS).eq_(pattern.seed).neg_()
    elif pattern.kind == p.STRIDE:
        out.bitwise_right_shift_(pattern.shift).bitwise_and_(1).neg_()
    else:
        raise ValueError(f"unknown kind of pattern {pattern.kind}: ADDRESS to SPLITMIX are 0 to 7")
    if pattern.keep != p.ALL_BITS:
        out.bitwise_and_(signed(pattern.keep))
    if pattern.flip:
        out.bitwise_xor_(signed(pattern.flip))


def _fill_hash(out: Any, seed: int, scratch: Any) -> None:
    out.mul_(signed(p.HASH_FACTOR)).add_(signed(seed))
    torch.bitwise_right_shift(out, 32, out=scratch)
    out.bitwise_xor_(scratch.bitwise_and_((1 << 32) - 1))  # torch shifts the sign in


def _fill_splitmix(out: Any, seed: int, scratch: Any) -> None:
    out.add_(1).mul_(signed(p.GOLDEN)).add_(signed(seed))
    for shift, factor in _SPLITMIX:
        torch.bitwise_right_shift(out, shift, out=scratch)
        scratch.bitwise_and_((1 << (64 - shift)) - 1)
        out.bitwise_xor_(scratch).mul_(factor)


class TorchWay:
    """`block_words` are compared at a time; by default as many as suit the device's cache."""

    name = "torch"

    def __init__(self, block_words: int = 0) -> None:
        self._block_words = block_words

    def write(self, piece: Piece, pattern: Pattern) -> None:
        """Write `pattern` into one piece."""
        scratch: Any = None
        for first, block in _iterate_blocks(piece, pattern.order, self._block_words):
            scratch = torch.empty_like(block) if scratch is None or scratch.numel() < block.numel() else scratch
            fill_pattern(block, pattern, first, scratch)

    def begin(self, pattern: Pattern, device: str, following: Pattern | None = None) -> TorchPass:
        """A pass that verifies `pattern`, and writes `following` to correct blocks."""
        return TorchPass(pattern, following, device, self._block_words)


class TorchPass:
    """Verifies pieces against one pattern, and writes `following` into the blocks that held."""

    def __init__(self, pattern: Pattern, following: Pattern | None, device: str, block_words: int) -> None:
        self.pattern, self.following = pattern, following
        self._block_words = block_words or _choose_block_words(device)
        self._wanted = torch.empty(0, dtype=torch.int64, device=device)
        self._scratch = self._wanted
        self._wrong = 0
        self._bits = [0] * 64
        self._listed: list[tuple[int, int]] = []

    def launch(self, piece: Piece, *, repeats: int = 1) -> None:
        """Go over one piece; each block is read `repeats` times before the next."""
        room = min(self._block_words, piece.memory.numel())
        if self._wanted.numel() < room:
            self._wanted = torch.empty(room, dtype=torch.int64, device=piece.memory.device)
            self._scratch = torch.empty_like(self._wanted)
        for first, block in _iterate_blocks(piece, self.pattern.order, self._block_words):
            wanted = self._wanted[: block.numel()]
            fill_pattern(wanted, self.pattern, first, self._scratch)
            wrong = self._wrong
            for _ in range(repeats):
                if not torch.equal(block, wanted):
                    self._note(block, wanted, first)
            if self.following is not None and self._wrong == wrong:
                fill_pattern(block, self.following, first, self._scratch)

    def errors(self, pieces: Sequence[Piece]) -> Errors:
        """The errors found; listed words are read again."""
        again = reread_words(pieces, self.pattern, self._listed)
        return Errors(self.pattern.name, self._wrong, tuple(self._bits), again)

    def _note(self, block: Any, wanted: Any, first: int) -> None:
        """Count and list differences. An error that disappears on the second read counts as one word at an unknown address."""
        read = block.clone()  # counted and listed are the same read
        places = (read != wanted).nonzero().flatten()
        actual = read[places]
        different = actual ^ wanted[places]
        self._wrong += max(places.numel(), 1)
        for bit in range(64):
            self._bits[bit] += int(different.bitwise_right_shift(bit).bitwise_and_(1).sum())
        room = LISTED - len(self._listed)
        self._listed += zip((places[:room] + first).tolist(), actual[:room].tolist(), strict=True)


def _iterate_blocks(piece: Piece, order: str, block_words: int) -> Iterator[tuple[int, Any]]:
    """(address of its first word, the block), each once, in `order`."""
    words = piece.memory.numel()
    size = block_words or _choose_block_words(str(piece.memory.device))
    blocks = -(-words // size)
    for turn in range(blocks):
        first = turn * choose_program_stride(order, blocks) % blocks * size
        yield piece.base + first, piece.memory[first : first + size]


def _choose_block_words(device: str) -> int:
    return HOST_BLOCK_WORDS if device.startswith("cpu") else GPU_BLOCK_WORDS

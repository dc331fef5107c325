"""64-bit digests of tensors, made on the device: of all bits and where they are, so that NaN equals NaN of the same bits.

A digest is kept for each block of the output, not one for all: what differs has a place at once, and the words of
a block that differs are set aside in the same pass, before the next product overwrites them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from preflight.kernels.patterns import ALL_BITS

BLOCK_WORDS = 2048
KEPT = 16  # blocks set aside


class Differing(NamedTuple):
    """One block that differed from the reference, and its words (unsigned, [block])."""

    repeat: int
    block: int
    words: list[int]


@triton.jit(do_not_specialize=["repeat", "blocks"])
def digest_kernel(
    data,
    digests,
    counter,
    kept_places,
    kept_words,
    words,
    blocks: tl.int64,
    repeat: tl.int64,
    COMPARE: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """One digest a block into int64 digests[repeat, block]; if `COMPARE`, against those of repeat 0.

    Of those that differ, the first ROOM: int64 kept_places[ROOM, 2] repeat and block, kept_words[ROOM, BLOCK].
    """
    block = tl.program_id(0).to(tl.int64)
    at = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    actual = tl.load(data + at, mask=at < words, other=0)
    mixed = (actual.to(tl.uint64, bitcast=True) + (at.to(tl.uint64) + 1) * 0x9E3779B97F4A7C15) * 0xBF58476D1CE4E5B9
    mixed = (mixed ^ (mixed >> 32)) * 0x94D049BB133111EB
    total = tl.sum((mixed ^ (mixed >> 29)).to(tl.int64, bitcast=True), 0)
    tl.store(digests + repeat.to(tl.int64) * blocks.to(tl.int64) + block, total)
    if COMPARE:  # noqa: SIM102 - decided by the compiler, and the other on the device
        if total != tl.load(digests + block):
            slot = tl.atomic_add(counter, 1)
            if slot < ROOM:
                tl.store(kept_places + slot * 2, repeat.to(tl.int64))
                tl.store(kept_places + slot * 2 + 1, block)
                tl.store(kept_words + slot * BLOCK + tl.arange(0, BLOCK), actual)


def as_words(tensor: Any) -> Any:
    """The same memory as int64[words]; ValueError if that cannot be."""
    if not tensor.is_contiguous() or tensor.numel() * tensor.element_size() % 8:
        raise ValueError(f"a digest needs whole 64-bit words side by side, not {tuple(tensor.shape)} of {tensor.dtype}")
    return tensor.view(-1).view(torch.int64)


class Digests:
    """The digests of `repeats` outputs of the same shape; only `read` and `differing` wait for the device."""

    def __init__(self, output: Any, repeats: int, block_words: int = BLOCK_WORDS) -> None:
        self.block_words = block_words
        self.blocks = -(-as_words(output).numel() // block_words)
        device = output.device
        self._digests = torch.zeros((repeats, self.blocks), dtype=torch.int64, device=device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=device)
        self._places = torch.zeros((KEPT, 2), dtype=torch.int64, device=device)
        self._words = torch.zeros((KEPT, block_words), dtype=torch.int64, device=device)

    def add(self, repeat: int, output: Any) -> None:
        """Digest the output of one repeat; those after the first are compared with it. Returns at once."""
        words = as_words(output)
        digest_kernel[(self.blocks,)](
            words,
            self._digests,
            self._counter,
            self._places,
            self._words,
            words.numel(),
            self.blocks,
            repeat,
            COMPARE=repeat > 0,
            BLOCK=self.block_words,
            ROOM=KEPT,
        )

    def read(self) -> list[str]:
        """One digest for each repeat, 16 hexadecimal figures."""
        places = torch.arange(1, self.blocks + 1, dtype=torch.int64, device=self._digests.device)
        totals = (self._digests * (places * 2 + 1)).sum(1)  # odd factors: swapped blocks are not equal
        return [f"{total & ALL_BITS:016x}" for total in totals.tolist()]

    def differing_repeats(self) -> list[int]:
        """The repeats whose digest of any block is not that of repeat 0."""
        return (self._digests != self._digests[0]).any(1).nonzero().flatten().tolist()  # type: ignore[no-any-return]  # torch has no types here

    def differing(self) -> list[Differing]:
        """The blocks set aside, by repeat and place."""
        many = min(int(self._counter), KEPT)
        places, words = self._places[:many].tolist(), self._words[:many].tolist()
        return sorted(
            Differing(repeat, block, [word & ALL_BITS for word in row])
            for (repeat, block), row in zip(places, words, strict=True)
        )


def digest(output: Any, block_words: int = BLOCK_WORDS) -> str:
    """The digest of one tensor, 16 hexadecimal figures."""
    one = Digests(output, 1, block_words)
    one.add(0, output)
    return one.read()[0]

"""The digest of each block of an output, as a GPU kernel. `preflight.kernels.tensor_digests` says the same in torch."""

from __future__ import annotations

import triton
import triton.language as tl


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

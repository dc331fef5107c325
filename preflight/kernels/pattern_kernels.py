"""Computes the words of `memory_patterns` on the device. Everything is 64 bits wide: a card has more than 2^32 words."""

from __future__ import annotations

import triton
import triton.language as tl

from preflight.kernels import memory_patterns

_ADDRESS = tl.constexpr(memory_patterns.ADDRESS)
_WALKING = tl.constexpr(memory_patterns.WALKING)
_CONSTANT = tl.constexpr(memory_patterns.CONSTANT)
_HASH = tl.constexpr(memory_patterns.HASH)
_CHECKER = tl.constexpr(memory_patterns.CHECKER)
_MODULO = tl.constexpr(memory_patterns.MODULO)
_STRIDE = tl.constexpr(memory_patterns.STRIDE)
_MODULUS = tl.constexpr(memory_patterns.MODULUS)


@triton.jit
def compute_block_number(first, step, blocks, SCATTERED: tl.constexpr):
    """The block of this program; only scattered ones pay for a 64-bit division."""
    block = tl.program_id(0).to(tl.int64) * step + first
    if SCATTERED:
        block = block % blocks
    return block


@triton.jit
def compute_pattern_word(first, lanes, seed, shift, keep, flip, KIND: tl.constexpr):
    """The same as `memory_patterns.compute_expected_word`, for the addresses `first` (int64) + `lanes` (int32 block, from 0).

    The two are kept apart because what depends on `first` alone is computed once for a program, and what depends on
    `lanes` alone once for a thread. int64, since torch has no uint64.
    """
    lane = lanes.to(tl.uint64)
    at = first.to(tl.uint64) + lane
    none = tl.full(lanes.shape, 0, tl.uint64)
    if KIND == _HASH:
        state = (seed.to(tl.uint64) + first.to(tl.uint64) * 0xBAE5929A3B1CECD5) + lane * 0xBAE5929A3B1CECD5
        raw = state ^ (state >> 32)
    elif KIND == _ADDRESS:
        raw = at * 8
    elif KIND == _WALKING:
        raw = (none + 1) << ((at + seed.to(tl.uint64)) & 63)
    elif KIND == _CONSTANT:
        raw = none + seed.to(tl.uint64)
    elif KIND == _CHECKER:
        raw = (none + 0x5555555555555555) << (at & 1)
    elif KIND == _MODULO:
        # Both remainders are small: their sum is the wanted one, or one turn more.
        rest = (
            (first.to(tl.uint64) % _MODULUS).to(tl.int32)
            + (lanes.to(tl.uint32) % _MODULUS).to(tl.int32)
            - seed.to(tl.int32)
        )
        raw = none - ((rest == 0) | (rest == _MODULUS)).to(tl.uint64)
    else:
        tl.static_assert(KIND == _STRIDE, "this kind of pattern has no kernel")
        raw = none - ((at >> shift.to(tl.uint64)) & 1)
    return ((raw & keep.to(tl.uint64)) ^ flip.to(tl.uint64)).to(tl.int64, bitcast=True)

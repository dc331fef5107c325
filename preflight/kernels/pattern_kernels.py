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
_MODULUS = tl.constexpr(memory_patterns.MODULUS)


@triton.jit
def splitmix(state):
    """The finaliser of splitmix64, of uint64."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB
    return state ^ (state >> 31)


@triton.jit
def compute_program_offsets(blocks, step, BLOCK: tl.constexpr):
    """Where this program's words are, as int64[BLOCK]: its turn may come out of order."""
    turn = tl.program_id(0).to(tl.int64)
    return (turn * step % blocks) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)


@triton.jit
def compute_pattern_word(address, seed, shift, keep, flip, KIND: tl.constexpr):
    """The same as `memory_patterns.compute_expected_word`, for a block of int64 addresses; int64, since torch has no uint64."""
    at = address.to(tl.uint64)
    one = tl.full(address.shape, 1, tl.uint64)
    none = tl.full(address.shape, 0, tl.uint64)
    if KIND == _ADDRESS:
        raw = at * 8
    elif KIND == _WALKING:
        raw = one << ((at + seed.to(tl.uint64)) & 63)
    elif KIND == _CONSTANT:
        raw = none + seed.to(tl.uint64)
    elif KIND == _HASH:
        raw = splitmix(seed.to(tl.uint64) + (at + 1) * 0x9E3779B97F4A7C15)
    elif KIND == _CHECKER:
        raw = (none + 0x5555555555555555) << (at & 1)
    elif KIND == _MODULO:
        raw = none - (at % _MODULUS == seed.to(tl.uint64)).to(tl.uint64)
    else:
        raw = none - ((at >> shift.to(tl.uint64)) & 1)
    return ((raw & keep.to(tl.uint64)) ^ flip.to(tl.uint64)).to(tl.int64, bitcast=True)

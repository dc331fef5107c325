"""The kernels that go over memory: write, verify, and verify while the next pattern is written. A block a program."""

from __future__ import annotations

import triton
import triton.language as tl

from preflight.kernels.pattern_kernels import compute_pattern_word, compute_program_offsets

# Whatever is a count or an address may be 1, or small: such a number must neither become a constant of the compiler
# nor 32 bits. Only `words` is left to it, because a multiple of 16 makes wide loads and stores out of masked ones.
_ANY = ["base", "blocks", "step", "seed", "shift", "keep", "flip"]
_NEXT = ["seed_next", "shift_next", "keep_next", "flip_next"]


@triton.jit(do_not_specialize=_ANY)
def write_kernel(
    memory,
    words,
    base: tl.int64,
    blocks: tl.int64,
    step: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a pattern into int64 memory[words], whose first word has the address `base`."""
    at = compute_program_offsets(blocks.to(tl.int64), step.to(tl.int64), BLOCK)
    tl.store(memory + at, compute_pattern_word(at + base.to(tl.int64), seed, shift, keep, flip, KIND), mask=at < words)


@triton.jit
def _record_errors(counters, listed, address, actual, different, found, many, ROOM: tl.constexpr):
    """Of a block with errors: add them to the histogram, list those there is room for. Only such blocks pay for it."""
    before = tl.minimum(tl.atomic_add(counters, many.to(tl.int64)), ROOM).to(tl.int32)
    slot = before + tl.cumsum(found, 0) - 1  # 32 bits: registers of this branch are taken from all programs
    listable = (found != 0) & (slot < ROOM)
    tl.store(listed + slot, address, mask=listable)
    tl.store(listed + ROOM + slot, actual, mask=listable)
    for bit in range(64):
        tl.atomic_add(counters + 1 + bit, tl.sum((different >> bit) & 1, 0))


@triton.jit(do_not_specialize=_ANY)
def verify_kernel(
    memory,
    counters,
    listed,
    words,
    base: tl.int64,
    blocks: tl.int64,
    step: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Compare memory with a pattern.

    Adds to int64 counters[65]: wrong words, then how often each bit was; and to int64 listed[2, ROOM]: their addresses,
    and what was read there.
    """
    at = compute_program_offsets(blocks.to(tl.int64), step.to(tl.int64), BLOCK)
    address = at + base.to(tl.int64)
    inside = at < words
    actual = tl.load(memory + at, mask=inside, other=0)
    different = tl.where(inside, actual ^ compute_pattern_word(address, seed, shift, keep, flip, KIND), 0)
    found = (different != 0).to(tl.int32)
    many = tl.sum(found, 0)
    if many > 0:
        _record_errors(counters, listed, address, actual, different, found, many, ROOM)


@triton.jit(do_not_specialize=[*_ANY, *_NEXT])
def verify_and_write_kernel(
    memory,
    counters,
    listed,
    words,
    base: tl.int64,
    blocks: tl.int64,
    step: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    seed_next: tl.int64,
    shift_next: tl.int64,
    keep_next: tl.int64,
    flip_next: tl.int64,
    KIND: tl.constexpr,
    KIND_NEXT: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """As `verify_kernel`, and put the next pattern in its place; not into a block with errors, which is to be read again."""
    at = compute_program_offsets(blocks.to(tl.int64), step.to(tl.int64), BLOCK)
    address = at + base.to(tl.int64)
    inside = at < words
    actual = tl.load(memory + at, mask=inside, other=0)
    different = tl.where(inside, actual ^ compute_pattern_word(address, seed, shift, keep, flip, KIND), 0)
    found = (different != 0).to(tl.int32)
    many = tl.sum(found, 0)
    if many > 0:
        _record_errors(counters, listed, address, actual, different, found, many, ROOM)
    else:
        tl.store(
            memory + at,
            compute_pattern_word(address, seed_next, shift_next, keep_next, flip_next, KIND_NEXT),
            mask=inside,
        )

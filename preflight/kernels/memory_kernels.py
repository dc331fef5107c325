"""The kernels that go over memory: write, verify, and verify while the next pattern is written. A block a program."""

from __future__ import annotations

import triton
import triton.language as tl

from preflight.kernels.pattern_kernels import compute_block_number, compute_pattern_word

# Whatever is a count or an address may be 1, or small: such a number must neither become a constant of the compiler
# nor 32 bits. `EVEN` says that the memory is a whole number of blocks: then no access needs a mask.
_ANY = ["words", "base", "blocks", "first", "step", "seed", "shift", "keep", "flip"]
_NEXT = ["seed_next", "shift_next", "keep_next", "flip_next"]


@triton.jit(do_not_specialize=_ANY)
def write_kernel(
    memory,
    words: tl.int64,
    base: tl.int64,
    blocks: tl.int64,
    first: tl.int64,
    step: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SCATTERED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write a pattern into int64 memory[words], whose first word has the address `base`."""
    start = compute_block_number(first, step, blocks, SCATTERED) * BLOCK
    lanes = tl.arange(0, BLOCK)
    wanted = compute_pattern_word(start + base, lanes, seed, shift, keep, flip, KIND)
    if EVEN:
        tl.store(memory + start + lanes, wanted)
    else:
        tl.store(memory + start + lanes, wanted, mask=lanes < words - start)


@triton.jit
def _load_block(memory, start, lanes, words, EVEN: tl.constexpr):
    if EVEN:
        actual = tl.load(memory + start + lanes)
    else:
        actual = tl.load(memory + start + lanes, mask=lanes < words - start, other=0)
    return actual


@triton.jit
def _differs(actual, wanted, lanes, inside, EVEN: tl.constexpr):
    """Whether any word of a block is not the wanted one; 32 bits, because a warp reduces those in one instruction."""
    different = actual ^ wanted
    if not EVEN:
        different = tl.where(lanes < inside, different, 0)
    return tl.max((different | (different >> 32)).to(tl.uint32), 0) != 0


@triton.jit
def _set_aside(notes, kept, times, block, actual, lanes, BLOCK: tl.constexpr, KEPT: tl.constexpr):
    """Note a wrong block, and keep its words while there is room. They are counted later: this is rare, and has to be small."""
    tl.atomic_add(times + block, 1)
    slot = tl.atomic_add(notes, 1)
    if slot < KEPT:
        tl.store(notes + 1 + slot, block)
        tl.store(kept + slot * BLOCK + lanes, actual)


@triton.jit(do_not_specialize=_ANY)
def verify_kernel(
    memory,
    notes,
    kept,
    times,
    words: tl.int64,
    base: tl.int64,
    blocks: tl.int64,
    first: tl.int64,
    step: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    KIND: tl.constexpr,
    EVEN: tl.constexpr,
    SCATTERED: tl.constexpr,
    BLOCK: tl.constexpr,
    KEPT: tl.constexpr,
):
    """Compare memory with a pattern, and set wrong blocks aside.

    int64 notes[1 + KEPT]: how many reads of a block were wrong, and the blocks of the first; int64 kept[KEPT, BLOCK]: what
    was read of these; int32 times[blocks]: how often each was wrong.
    """
    block = compute_block_number(first, step, blocks, SCATTERED)
    start = block * BLOCK
    lanes = tl.arange(0, BLOCK)
    actual = _load_block(memory, start, lanes, words, EVEN)
    wanted = compute_pattern_word(start + base, lanes, seed, shift, keep, flip, KIND)
    if _differs(actual, wanted, lanes, words - start, EVEN):
        _set_aside(notes, kept, times, block, actual, lanes, BLOCK, KEPT)


@triton.jit(do_not_specialize=[*_ANY, *_NEXT])
def verify_and_write_kernel(
    memory,
    notes,
    kept,
    times,
    words: tl.int64,
    base: tl.int64,
    blocks: tl.int64,
    first: tl.int64,
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
    EVEN: tl.constexpr,
    SCATTERED: tl.constexpr,
    BLOCK: tl.constexpr,
    KEPT: tl.constexpr,
):
    """As `verify_kernel`, and put the next pattern in its place; not into a wrong block, which is to be read again."""
    block = compute_block_number(first, step, blocks, SCATTERED)
    start = block * BLOCK
    lanes = tl.arange(0, BLOCK)
    actual = _load_block(memory, start, lanes, words, EVEN)
    wanted = compute_pattern_word(start + base, lanes, seed, shift, keep, flip, KIND)
    if _differs(actual, wanted, lanes, words - start, EVEN):
        _set_aside(notes, kept, times, block, actual, lanes, BLOCK, KEPT)
    else:
        following = compute_pattern_word(start + base, lanes, seed_next, shift_next, keep_next, flip_next, KIND_NEXT)
        if EVEN:
            tl.store(memory + start + lanes, following)
        else:
            tl.store(memory + start + lanes, following, mask=lanes < words - start)


@triton.jit(do_not_specialize=["words", "base", "seed", "shift", "keep", "flip"])
def count_kernel(
    data,
    rows,
    numbers,
    times,
    counters,
    listed,
    words: tl.int64,
    base: tl.int64,
    seed: tl.int64,
    shift: tl.int64,
    keep: tl.int64,
    flip: tl.int64,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    ROOM: tl.constexpr,
):
    """Count the wrong words of blocks that were set aside, one a program: block `numbers[i]`, read into data[rows[i], BLOCK].

    Adds to int64 counters[66], each as often as `times` says: wrong words (at least one, though the words may be correct
    by now), words listed, and how often each bit was wrong; and to int64 listed[2, ROOM]: addresses, and what was read.
    """
    turn = tl.program_id(0)
    start = tl.load(numbers + turn) * BLOCK
    often = tl.load(times + turn).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    inside = lanes < words - start
    actual = tl.load(data + tl.load(rows + turn) * BLOCK + lanes, mask=inside, other=0)
    wanted = compute_pattern_word(start + base, lanes, seed, shift, keep, flip, KIND)
    different = tl.where(inside, actual ^ wanted, 0)
    found = (different != 0).to(tl.int32)
    many = tl.sum(found, 0)
    tl.atomic_add(counters, tl.maximum(many, 1).to(tl.int64) * often)
    before = tl.minimum(tl.atomic_add(counters + 1, many.to(tl.int64)), ROOM).to(tl.int32)
    slot = before + tl.cumsum(found, 0) - 1
    listable = (found != 0) & (slot < ROOM)
    tl.store(listed + slot, start + base + lanes, mask=listable)
    tl.store(listed + ROOM + slot, actual, mask=listable)
    for bit in range(64):
        tl.atomic_add(counters + 2 + bit, tl.sum((different >> bit) & 1, 0) * often)

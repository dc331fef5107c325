"""Kernels whose programs keep words in the memories of a multiprocessor: registers, shared memory, L1.

Each program returns its words, or the wrong bits, and its SM. Comparing them afterwards leaves nearly all registers to the
words. The xor of all flips is 0, so the words come back as they went.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from preflight.kernels import on_chip_words
from preflight.kernels.on_chip_words import (
    HELD_WORDS,
    L1,
    LINE_WORDS,
    NOT_KNOWN,
    REGISTERS,
    ProgramOutputs,
    SourceWords,
)
from preflight.kernels.tensor_digests import asks_multiprocessor

ROWS = 64  # the tile in shared memory: 64 x 128 words
_FAULT_WORD = tl.constexpr(on_chip_words.FAULT_WORD)
_LINE_FACTOR = tl.constexpr(on_chip_words.LINE_FACTOR)


@triton.jit
def _flip_fault(lanes, fault, mask):
    """`mask` in one word of the program `fault`."""
    return tl.where((lanes == _FAULT_WORD) & (tl.program_id(0) == fault), mask, 0)


@triton.jit
def _store_outputs(outputs, sms, words, lanes, WORDS: tl.constexpr, ASK_SM: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    tl.store(outputs + program * WORDS + lanes, words)
    if ASK_SM:
        sm = tl.inline_asm_elementwise("mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
        tl.store(sms + program, sm)


@triton.jit(do_not_specialize=["turns", "fault", "mask"])
def register_kernel(held, flips, outputs, sms, turns, fault, mask, WORDS: tl.constexpr, ASK_SM: tl.constexpr):
    """Keep int32 held[WORDS] in registers, and rewrite all of them in every turn."""
    lanes = tl.arange(0, WORDS)
    words = tl.load(held + lanes) ^ _flip_fault(lanes, fault, mask)
    for turn in range(turns):
        words ^= tl.load(flips + turn)
    _store_outputs(outputs, sms, words, lanes, WORDS, ASK_SM)


@triton.jit(do_not_specialize=["turns", "fault", "mask"])
def shared_kernel(
    held, flips, outputs, sms, turns, fault, mask, WORDS: tl.constexpr, ROWS: tl.constexpr, ASK_SM: tl.constexpr
):
    """Transpose a tile in every turn: threads write it to shared memory, and read the words of others."""
    lanes = tl.arange(0, WORDS)
    words = tl.load(held + lanes) ^ _flip_fault(lanes, fault, mask)
    for turn in range(turns):
        # As lines of one dimension: a tile carried from turn to turn has a layout that never settles in the compiler.
        tile = tl.trans(tl.reshape(words, (ROWS, WORDS // ROWS)))
        words = tl.reshape(tile, (WORDS,)) ^ tl.load(flips + turn)
    _store_outputs(outputs, sms, words, lanes, WORDS, ASK_SM)


@triton.jit(do_not_specialize=["turns", "window", "windows", "fault", "mask"])
def l1_kernel(lines, outputs, sms, turns, window, windows, fault, mask, WORDS: tl.constexpr, ASK_SM: tl.constexpr):
    """Read `window` lines of int32 lines[:, WORDS] in every turn through the L1, and collect wrong bits.

    The first line is kept in registers; all others follow from it.
    """
    lanes = tl.arange(0, WORDS)
    base = tl.load(lines + lanes) ^ _flip_fault(lanes, fault, mask)
    first = (tl.program_id(0) % windows) * window
    wrong = tl.zeros((WORDS,), tl.int32)
    for turn in range(turns * window):
        line = first + turn % window
        wrong |= tl.load(lines + line * WORDS + lanes, cache_modifier=".ca") ^ base ^ (line * _LINE_FACTOR)
    _store_outputs(outputs, sms, wrong, lanes, WORDS, ASK_SM)


def run_programs(
    memory: str, source: SourceWords, programs: int, window: int, fault: int, mask: int, *, ask_sm: bool | None = None
) -> ProgramOutputs:
    """Let `programs` keep words in one memory; `mask` is flipped in one word of the program `fault`. Does not wait."""
    words, device = LINE_WORDS if memory == L1 else HELD_WORDS, source.held.device
    outputs = torch.empty((programs, words), dtype=torch.int32, device=device)
    sms = torch.full((programs,), NOT_KNOWN, dtype=torch.int32, device=device)
    turns = source.flips.numel()
    settings = {"WORDS": words, "ASK_SM": asks_multiprocessor(source.held) if ask_sm is None else ask_sm}
    if memory == L1:
        windows = source.lines.shape[0] // window
        l1_kernel[(programs,)](source.lines, outputs, sms, turns, window, windows, fault, mask, **settings)
        return ProgramOutputs(outputs, sms)
    kernel: Any = register_kernel if memory == REGISTERS else shared_kernel
    tile = {} if memory == REGISTERS else {"ROWS": ROWS}
    kernel[(programs,)](source.held, source.flips, outputs, sms, turns, fault, mask, **settings, **tile)
    return ProgramOutputs(outputs, sms)

"""Memory: ceilings, each pattern's rates beside them, the whole card, and a flipped bit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from bench.gpu.table import Row, Scale, measure_seconds, wait_for_device
from preflight.kernels.gpu_memory_allocation import TakenMemory, allocate_gpu_memory
from preflight.kernels.memory_errors import WORD_BYTES, Errors, Piece
from preflight.kernels.memory_patterns import FULL, GATE, Pattern
from preflight.kernels.memory_sweeps import hold_and_verify, sweep_patterns
from preflight.kernels.triton_memory import Pass, TritonWay, verify, write

FLIPPED_BIT = 21
_WAY = TritonWay()


def allocate_tested_memory(scale: Scale) -> TakenMemory:
    """The memory under test: nearly all of the card's, or a little of the host's."""
    if scale.take_bytes is None:
        return allocate_gpu_memory(scale.device)
    odd = torch.empty(scale.take_bytes // WORD_BYTES - 3, dtype=torch.int64)  # no whole number of blocks
    return TakenMemory([Piece(odd)], scale.take_bytes, odd.numel() * WORD_BYTES)


def measure_ceilings(scale: Scale, memory: Any) -> tuple[dict[str, float], list[Row]]:
    """Bytes a second of torch's own fill, sum and copy of the same memory."""
    half = memory.numel() // 2
    size = memory.numel() * WORD_BYTES
    sums = (memory, memory.view(torch.float32))
    best = {
        "fill": size / measure_seconds(scale.device, lambda: memory.fill_(0x5A)),
        "sum": max(size / measure_seconds(scale.device, one.sum) for one in sums),
        "copy": 2
        * half
        * WORD_BYTES
        / measure_seconds(scale.device, lambda: memory[:half].copy_(memory[half : 2 * half])),
    }
    notes = {"fill": "written", "sum": "read", "copy": "read and written"}
    return best, [Row("ceilings", name, rate / 1e9, "GB/s", note=notes[name]) for name, rate in best.items()]


def pattern_rows(scale: Scale, memory: Any, ceiling: dict[str, float], pattern: Pattern) -> Iterator[Row]:
    """Written, verified, and verified while its complement is written."""
    piece = Piece(memory)
    size = memory.numel() * WORD_BYTES
    write(piece, pattern)
    passes: tuple[tuple[str, str, int, Callable[[], object]], ...] = (
        ("written", "fill", 1, lambda: write(piece, pattern)),
        ("verified", "sum", 1, lambda: Pass(pattern, scale.device).launch(piece)),
        ("verified, next written", "copy", 2, _there_and_back(scale, piece, pattern)),
    )
    for name, against, times, call in passes:
        rate = times * size / measure_seconds(scale.device, call)
        if times == 2:
            rate *= 2  # there and back are two passes
        yield Row("patterns", f"{pattern.name}: {name}", rate / 1e9, "GB/s", rate / ceiling[against], f"of {against}")


def _there_and_back(scale: Scale, piece: Piece, pattern: Pattern) -> Callable[[], None]:
    other = pattern.inverted()

    def call() -> None:
        Pass(pattern, scale.device, other).launch(piece)
        Pass(other, scale.device, pattern).launch(piece)

    return call


def whole_rows(scale: Scale, got: TakenMemory, heat: Callable[[], None]) -> Iterator[Row]:
    """The whole card: four patterns, all patterns, retention; errors that nobody injected are shown as what they are."""
    wait_for_device(scale.device)
    for name, patterns in (("gate", GATE), ("all", FULL)):
        first, took = 0.0, 0.0
        found: list[Errors] = []
        for _ in range(2):
            began = time.perf_counter()
            found += sweep_patterns(_WAY, got.pieces, patterns)
            first, took = took, time.perf_counter() - began
        note = f"{describe_errors(found) or 'no errors'}; the first time, with compiling, {first:.1f} s"
        yield Row("whole card", f"{name}: {len(patterns)} patterns", took, "s", note=note)
    began = time.perf_counter()
    errors = hold_and_verify(_WAY, got.pieces, FULL[-1], heat)
    took = time.perf_counter() - began
    yield Row("whole card", "retention under heat", took, "s", note=describe_errors([errors]) or "no errors")


def describe_errors(found: list[Errors]) -> str:
    """Real errors in one sentence, or nothing."""
    bad = [errors for errors in found if errors.wrong]
    return "; ".join(f"{errors.wrong} WRONG WORDS in {errors.pattern}: {errors.listed[0]}" for errors in bad)


def fault_row(scale: Scale, got: TakenMemory) -> Row:
    """One bit flipped in the last piece, after the write."""
    pattern = GATE[1]
    for piece in got.pieces:
        write(piece, pattern)
    wait_for_device(scale.device)
    place = got.pieces[-1].memory.numel() * 2 // 3
    got.pieces[-1].memory[place] ^= 1 << FLIPPED_BIT
    errors = verify(got.pieces, pattern)
    exact = [word for word in errors.listed if word.expected ^ word.actual == 1 << FLIPPED_BIT]
    right = errors.wrong == 1 and [word.offset_bytes for word in exact] == [place * WORD_BYTES]
    return Row("faults", "bit flip in memory", note=f"{'detected' if right else 'MISSED'}: {describe_errors([errors])}")

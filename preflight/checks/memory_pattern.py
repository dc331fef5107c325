"""Memory: writes patterns over nearly all of it, and verifies each by recomputing it on the device.

A pattern is written completely before it is read; it is verified while the next is written. Failing memory is tested a
second time with other random words, to distinguish a broken cell from a one-time error.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import NamedTuple

from preflight.check_context import Context, Device
from preflight.checks.memory_allocation import AllocatedMemory, allocate_test_memory, warm_up_kernels
from preflight.checks.memory_diagnosis import build_failed_result, diagnose_errors
from preflight.checks.memory_fault_injection import MemoryFaultInjector
from preflight.checks.torch_devices import run_on_device
from preflight.kernels.memory_errors import Errors
from preflight.kernels.memory_patterns import FULL, GATE, Pattern, reseed_patterns
from preflight.kernels.memory_sweeps import sweep_patterns, verify_pieces
from preflight.results import Figure, Result
from vocabulary.text.plurals import format_count

TEST = "memory_pattern"


class SweepResult(NamedTuple):
    """The errors of all rounds, and when each pattern of the last round was complete (seconds)."""

    rounds: int
    patterns: tuple[Pattern, ...]
    found: list[Errors]
    stood: list[float]


@run_on_device
def check_memory_pattern(context: Context, device: Device) -> Result:
    """Allocate the memory and test it."""
    room = allocate_test_memory(device, context.note)
    return verify_test_memory(context, room) if room.pieces else room.empty(TEST)


def verify_test_memory(context: Context, room: AllocatedMemory) -> Result:
    """Rounds of all patterns of the level for the test's duration, at least one."""
    device = room.device
    patterns = GATE if context.level == "gate" else FULL
    if not device.on_host:
        context.note(f"preparing {format_count(len(patterns), 'pattern')}")
        warm_up_kernels(room.way, device, patterns)
    rates, errors = _measure_pattern_rates(room, patterns[1], context)
    spoil = MemoryFaultInjector(context.fault, room.pieces)
    swept = SweepResult(0, patterns, [errors], []) if errors.wrong else _run_rounds(context, room, patterns, spoil)
    evidence = room.evidence | {"patterns": len(patterns), "rounds": swept.rounds}
    if not swept.found:
        figures = (*room.figures, *rates, *_compute_rewrite_rate(room, swept))
        return room.passed(TEST, figures, evidence)
    context.note(f"{device.name}: errors found; checking again")
    second = sweep_patterns(room.way, room.pieces, reseed_patterns(patterns, swept.rounds + 1), spoil)
    by_name = {pattern.name: pattern for pattern in swept.patterns}
    diagnosis = diagnose_errors(swept.found, second, by_name, room.words)
    return build_failed_result(room.passed(TEST, (), evidence), swept.found, diagnosis, device)


def _run_rounds(
    context: Context, room: AllocatedMemory, patterns: tuple[Pattern, ...], spoil: MemoryFaultInjector
) -> SweepResult:
    began = time.perf_counter()
    for number in itertools.count(1):
        stood: list[float] = []

        def standing(pattern: Pattern, number: int = number, stood: list[float] = stood) -> None:
            context.note(f"{room.device.name}: round {number}, {pattern.name}")
            spoil(pattern)
            stood.append(time.perf_counter())

        drawn = reseed_patterns(patterns, number)
        found = sweep_patterns(room.way, room.pieces, drawn, standing)
        spent = time.perf_counter() - began
        if found or spent * (number + 1) / number > context.seconds:
            return SweepResult(number, drawn, found, stood)
    raise AssertionError  # unreachable: the counter has no end


def _measure_pattern_rates(
    room: AllocatedMemory, pattern: Pattern, context: Context
) -> tuple[tuple[Figure, ...], Errors]:
    """The write and verify rate of a single pattern, and its errors."""
    context.note(f"{room.device.name}: rates of writing and verifying")
    size, setting = room.taken.taken_bytes, f"{pattern.name}, {room.doing}"

    def write() -> None:
        for piece in room.pieces:
            room.way.write(piece, pattern)

    writing, _ = room.timed(write)
    verifying, errors = room.timed(lambda: verify_pieces(room.way, room.pieces, pattern))
    return (
        Figure(name="write_rate", value=size / writing / 1e9, unit="GB/s", setting=setting),
        Figure(name="verify_rate", value=size / verifying / 1e9, unit="GB/s", setting=setting),
    ), errors


def _compute_rewrite_rate(room: AllocatedMemory, swept: SweepResult) -> tuple[Figure, ...]:
    """Bytes read and written per second while one pattern is verified and the next replaces it, the usual pass.

    The first pass is excluded, because the device may still be writing.
    """
    passes = [after - before for before, after in itertools.pairwise(swept.stood)][1:]
    rate = 2 * room.taken.taken_bytes / statistics.median(passes) / 1e9
    setting = f"{format_count(len(swept.patterns), 'pattern')}, {room.doing}"
    return (Figure(name="rewrite_rate", value=rate, unit="GB/s", setting=setting),)

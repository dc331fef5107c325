"""Cache test: writes patterns to a buffer that stays in the cache (L2 of a GPU, last level of a CPU), and verifies them repeatedly.

On a GPU the buffer is half the size of the L2, because some L2 caches keep a copy in each half; its address changes every
round, so that over time other cells of the cache are tested.
"""

from __future__ import annotations

import itertools
import statistics
import time
from typing import NamedTuple

import torch

from preflight.check_context import Context, Device
from preflight.checks.cache_sizes import read_host_cache_bytes
from preflight.checks.memory_allocation import AllocatedMemory, choose_memory_way
from preflight.checks.memory_diagnosis import build_failed_result, diagnose_errors
from preflight.checks.memory_fault_injection import MemoryFaultInjector
from preflight.checks.torch_devices import run_on_device
from preflight.kernels.gpu_memory_allocation import TakenMemory
from preflight.kernels.memory_errors import WORD_BYTES, Errors, Piece
from preflight.kernels.memory_patterns import FULL, Pattern, reseed_patterns
from preflight.kernels.memory_sweeps import verify_pieces
from preflight.kernels.torch_memory import TorchWay
from preflight.results import Evidence, Figure, Result
from vocabulary.text.plurals import format_count

TEST = "cache_pattern"
PATTERNS = tuple(pattern for pattern in FULL if not pattern.name.startswith("stride"))  # the others test rows of memory
WINDOWS = 4
GPU_REPEATS = 200  # launching a kernel takes as long as some ten passes over the cache
REPEATS = 20
INTERPRETED_REPEATS = 2  # a kernel interpreted on the CPU is a thousand times slower
SMALLEST_BYTES = 64 << 10
L2_UNKNOWN_BYTES = 32 << 20
HOST_UNKNOWN_BYTES = 1 << 20


class WindowResult(NamedTuple):
    """One round over one window: errors, and bytes verified per second for each pattern."""

    patterns: tuple[Pattern, ...]
    found: list[Errors]
    rates: list[float]


class RoundsResult(NamedTuple):
    """Number of rounds, the last round, overall bytes verified per second, and the injected fault.

    No round, if preparation failed.
    """

    number: int
    last: WindowResult
    rates: list[float]
    spoil: MemoryFaultInjector


@run_on_device
def check_cache_pattern(context: Context, device: Device) -> Result:
    """Run rounds of all patterns, each in another window of the buffer, for the test's duration."""
    room, windows = _allocate_windows(context, device)
    context.note(f"{device.name}: preparing {format_count(len(PATTERNS), 'pattern')}")
    # Compiles kernels ahead of the timing; errors here count too.
    ready = _hammer_window(room, windows[0], PATTERNS, 1, MemoryFaultInjector("", windows))
    idle = MemoryFaultInjector(context.fault, windows[:1])
    gone = RoundsResult(0, ready, [], idle) if ready.found else _run_rounds(context, room, windows)
    window, repeats = windows[gone.number % WINDOWS], _choose_repeats(room)
    size = window.memory.numel() * WORD_BYTES
    evidence: Evidence = {
        "rounds": gone.number,
        "window_bytes": size,
        "repeats": repeats if gone.number else 1,
        "patterns": len(PATTERNS),
    }
    seen = gone.last
    if not seen.found:
        setting = f"{size >> 10} KiB verified, {room.doing}"
        figure = Figure(name="cache_rate", value=statistics.median(gone.rates) / 1e9, unit="GB/s", setting=setting)
        return room.passed(TEST, (figure,), evidence)
    context.note(f"{device.name}: errors found; checking again")
    second = _hammer_window(room, window, reseed_patterns(PATTERNS, gone.number + 1), repeats, gone.spoil)
    by_name = {pattern.name: pattern for pattern in seen.patterns}
    diagnosis = diagnose_errors(seen.found, second.found, by_name, room.words)
    return build_failed_result(room.passed(TEST, (), evidence), seen.found, diagnosis, device)


def _run_rounds(context: Context, room: AllocatedMemory, windows: list[Piece]) -> RoundsResult:
    repeats, rates = _choose_repeats(room), []
    began = time.perf_counter()
    for number in itertools.count(1):
        window = windows[number % WINDOWS]
        context.note(
            f"{room.device.name}: round {number}, {format_count(len(PATTERNS), 'pattern')}, each read {repeats} times"
        )
        spoil = MemoryFaultInjector(context.fault, [window])
        seen = _hammer_window(room, window, reseed_patterns(PATTERNS, number), repeats, spoil)
        rates += seen.rates
        if seen.found or (time.perf_counter() - began) * (number + 1) / number > context.seconds:
            return RoundsResult(number, seen, rates, spoil)
    raise AssertionError  # unreachable: the counter has no end


def choose_window_bytes(device: Device, devices: int) -> int:
    """The window size: half of a GPU's L2, a quarter of a device's share of the host's last-level cache."""
    if device.on_host:
        size = (read_host_cache_bytes() or HOST_UNKNOWN_BYTES) // 4 // max(devices, 1)
    else:
        size = (torch.cuda.get_device_properties(device.torch_name).L2_cache_size or L2_UNKNOWN_BYTES) // 2
    return max(size, SMALLEST_BYTES) // SMALLEST_BYTES * SMALLEST_BYTES


def _allocate_windows(context: Context, device: Device) -> tuple[AllocatedMemory, list[Piece]]:
    """The buffer and its windows."""
    words = choose_window_bytes(device, len(context.devices)) // WORD_BYTES
    way, said = choose_memory_way(device, context.note)
    if isinstance(way, TorchWay):
        way = TorchWay(words)  # the whole window at once: a block of it would stay in a smaller cache
    buffer = torch.empty(WINDOWS * words, dtype=torch.int64, device=device.torch_name)
    size = buffer.numel() * WORD_BYTES
    windows = [Piece(window, number * words) for number, window in enumerate(buffer.chunk(WINDOWS))]
    return AllocatedMemory(device, way, TakenMemory([Piece(buffer)], size, size), said), windows


def _choose_repeats(room: AllocatedMemory) -> int:
    if isinstance(room.way, TorchWay):
        return REPEATS
    return INTERPRETED_REPEATS if room.device.on_host else GPU_REPEATS


def _hammer_window(
    room: AllocatedMemory, window: Piece, patterns: tuple[Pattern, ...], repeats: int, spoil: MemoryFaultInjector
) -> WindowResult:
    found, rates = [], []
    for pattern in patterns:
        room.way.write(window, pattern)
        spoil(pattern)
        seconds, errors = room.timed(lambda: verify_pieces(room.way, [window], pattern, repeats=repeats))  # noqa: B023 - called at once
        rates.append(window.memory.numel() * WORD_BYTES * repeats / seconds)
        if errors.wrong:
            found.append(errors)
    return WindowResult(patterns, found, rates)

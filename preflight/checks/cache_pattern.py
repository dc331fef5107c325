"""Cache: patterns over a buffer that stays in it (L2 of a GPU, the last level of a processor), read many times and verified.

On a GPU the buffer is half of the L2's size, because some keep a copy in each of two halves; it lies elsewhere in each
round, so that in time other cells of the cache hold it.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

import torch

from preflight.checks.cache_sizes import host_cache_bytes
from preflight.checks.context import Context, Device
from preflight.checks.memory_faults import diagnose, failed
from preflight.checks.memory_room import Room, way_for
from preflight.checks.memory_spoil import Spoiler
from preflight.kernels.patterns import FULL, Pattern, reseeded
from preflight.kernels.sweeps import verify
from preflight.kernels.taking import Taken
from preflight.kernels.torch_memory import TorchWay
from preflight.kernels.wrong_words import WORD_BYTES, Errors, Piece
from preflight.results import Evidence, Figure, Result
from vocabulary.counts import counted

TEST = "cache_pattern"
PATTERNS = tuple(pattern for pattern in FULL if not pattern.name.startswith("stride"))  # those are for memory's rows
WINDOWS = 4
GPU_REPEATS = 200  # to launch a kernel takes as long as to go over the cache some ten times
REPEATS = 20
INTERPRETED_REPEATS = 2  # a kernel on the processor is a thousand times slower
SMALLEST_BYTES = 64 << 10
L2_UNKNOWN_BYTES = 32 << 20
HOST_UNKNOWN_BYTES = 1 << 20


def run(context: Context) -> Iterator[Result]:
    """One result for this process's device."""
    if context.device is not None:
        yield check(context, context.device)


class Hammered(NamedTuple):
    """One round over one window: what was wrong, and bytes verified a second for each pattern."""

    patterns: tuple[Pattern, ...]
    found: list[Errors]
    rates: list[float]


class Rounds(NamedTuple):
    """How many rounds were gone over, the last of them, bytes verified a second in all, and the fault committed.

    No round, if something was wrong while making ready.
    """

    number: int
    last: Hammered
    rates: list[float]
    spoil: Spoiler


def check(context: Context, device: Device) -> Result:
    """Rounds of all patterns, each in another window of the buffer, as many as the test's seconds allow."""
    room, windows = _enter(context, device)
    context.note(f"{device.name}: making ready {counted(len(PATTERNS), 'pattern')}")
    # Compiles what takes no time from then on; what is wrong here is wrong all the same.
    ready = _hammer(room, windows[0], PATTERNS, 1, Spoiler("", windows))
    idle = Spoiler(context.fault, windows[:1])
    gone = Rounds(0, ready, [], idle) if ready.found else _rounds(context, room, windows)
    window, repeats = windows[gone.number % WINDOWS], _repeats(room)
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
    context.note(f"{device.name}: errors; looking a second time")
    second = _hammer(room, window, reseeded(PATTERNS, gone.number + 1), repeats, gone.spoil)
    by_name = {pattern.name: pattern for pattern in seen.patterns}
    diagnosis = diagnose(seen.found, second.found, by_name, room.words)
    return failed(room.passed(TEST, (), evidence), seen.found, diagnosis, device)


def _rounds(context: Context, room: Room, windows: list[Piece]) -> Rounds:
    repeats, rates = _repeats(room), []
    began = time.perf_counter()
    for number in itertools.count(1):
        window = windows[number % WINDOWS]
        context.note(
            f"{room.device.name}: round {number}, {counted(len(PATTERNS), 'pattern')}, each read {repeats} times"
        )
        spoil = Spoiler(context.fault, [window])
        seen = _hammer(room, window, reseeded(PATTERNS, number), repeats, spoil)
        rates += seen.rates
        if seen.found or (time.perf_counter() - began) * (number + 1) / number > context.seconds:
            return Rounds(number, seen, rates, spoil)
    raise AssertionError  # unreachable: the counter has no end


def window_bytes(device: Device, devices: int) -> int:
    """How much is gone over at a time: half of a GPU's L2, a quarter of a device's share of the host's last cache."""
    if device.on_host:
        size = (host_cache_bytes() or HOST_UNKNOWN_BYTES) // 4 // max(devices, 1)
    else:
        size = (torch.cuda.get_device_properties(device.torch_name).L2_cache_size or L2_UNKNOWN_BYTES) // 2
    return max(size, SMALLEST_BYTES) // SMALLEST_BYTES * SMALLEST_BYTES


def _enter(context: Context, device: Device) -> tuple[Room, list[Piece]]:
    """The buffer and its windows."""
    words = window_bytes(device, len(context.devices)) // WORD_BYTES
    way, said = way_for(device, context.note)
    if isinstance(way, TorchWay):
        way = TorchWay(words)  # the whole window at once: a block of it would stay in a smaller cache
    buffer = torch.empty(WINDOWS * words, dtype=torch.int64, device=device.torch_name)
    size = buffer.numel() * WORD_BYTES
    windows = [Piece(window, number * words) for number, window in enumerate(buffer.chunk(WINDOWS))]
    return Room(device, way, Taken([Piece(buffer)], size, size), said), windows


def _repeats(room: Room) -> int:
    if isinstance(room.way, TorchWay):
        return REPEATS
    return INTERPRETED_REPEATS if room.device.on_host else GPU_REPEATS


def _hammer(room: Room, window: Piece, patterns: tuple[Pattern, ...], repeats: int, spoil: Spoiler) -> Hammered:
    found, rates = [], []
    for pattern in patterns:
        room.way.write(window, pattern)
        spoil(pattern)
        seconds, errors = room.timed(lambda: verify(room.way, [window], pattern, repeats=repeats))  # noqa: B023 - called at once
        rates.append(window.memory.numel() * WORD_BYTES * repeats / seconds)
        if errors.wrong:
            found.append(errors)
    return Hammered(patterns, found, rates)

"""Memory: write patterns over nearly all of it, and verify each by computing it again on the device.

All of a pattern is written before any of it is read; each is verified while the next is written. What fails is looked at a
second time, with other random words, to tell a cell that is broken from one that was hit once.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import NamedTuple

from preflight.checks.context import Context, Device
from preflight.checks.memory_faults import diagnose, failed
from preflight.checks.memory_room import Room, enter, warm
from preflight.checks.memory_spoil import Spoiler
from preflight.kernels.patterns import FULL, GATE, Pattern, reseeded
from preflight.kernels.sweeps import sweep, verify
from preflight.kernels.wrong_words import Errors
from preflight.results import Figure, Result
from vocabulary.counts import counted

TEST = "memory_pattern"


class Swept(NamedTuple):
    """What the rounds found, and when each pattern of the last stood in memory (seconds)."""

    rounds: int
    patterns: tuple[Pattern, ...]
    found: list[Errors]
    stood: list[float]


def run(context: Context) -> Iterator[Result]:
    """One result for this process's device."""
    if context.device is not None:
        yield check(context, context.device)


def check(context: Context, device: Device) -> Result:
    """Take the memory and go over it."""
    room = enter(device, context.note)
    return over(context, room) if room.pieces else room.empty(TEST)


def over(context: Context, room: Room) -> Result:
    """Rounds of all patterns of the level, as many as its seconds allow and at least one."""
    device = room.device
    patterns = GATE if context.level == "gate" else FULL
    if not device.on_host:
        context.note(f"making ready {counted(len(patterns), 'pattern')}")
        warm(room.way, device, patterns)
    rates, errors = _rates(room, patterns[1], context)
    spoil = Spoiler(context.fault, room.pieces)
    swept = Swept(0, patterns, [errors], []) if errors.wrong else _rounds(context, room, patterns, spoil)
    evidence = room.evidence | {"patterns": len(patterns), "rounds": swept.rounds}
    if not swept.found:
        figures = (*room.figures, *rates, *_rewrite_rate(room, swept))
        return room.passed(TEST, figures, evidence)
    context.note(f"{device.name}: errors; looking a second time")
    second = sweep(room.way, room.pieces, reseeded(patterns, swept.rounds + 1), spoil)
    by_name = {pattern.name: pattern for pattern in swept.patterns}
    diagnosis = diagnose(swept.found, second, by_name, room.words)
    return failed(room.passed(TEST, (), evidence), swept.found, diagnosis, device)


def _rounds(context: Context, room: Room, patterns: tuple[Pattern, ...], spoil: Spoiler) -> Swept:
    began = time.perf_counter()
    for number in itertools.count(1):
        stood: list[float] = []

        def standing(pattern: Pattern, number: int = number, stood: list[float] = stood) -> None:
            context.note(f"{room.device.name}: round {number}, {pattern.name}")
            spoil(pattern)
            stood.append(time.perf_counter())

        drawn = reseeded(patterns, number)
        found = sweep(room.way, room.pieces, drawn, standing)
        spent = time.perf_counter() - began
        if found or spent * (number + 1) / number > context.seconds:
            return Swept(number, drawn, found, stood)
    raise AssertionError  # unreachable: the counter has no end


def _rates(room: Room, pattern: Pattern, context: Context) -> tuple[tuple[Figure, ...], Errors]:
    """How fast one pattern alone is written and verified, and what was wrong."""
    context.note(f"{room.device.name}: rates of writing and verifying")
    size, setting = room.taken.taken_bytes, f"{pattern.name}, {room.doing}"

    def write() -> None:
        for piece in room.pieces:
            room.way.write(piece, pattern)

    writing, _ = room.timed(write)
    verifying, errors = room.timed(lambda: verify(room.way, room.pieces, pattern))
    return (
        Figure(name="write_rate", value=size / writing / 1e9, unit="GB/s", setting=setting),
        Figure(name="verify_rate", value=size / verifying / 1e9, unit="GB/s", setting=setting),
    ), errors


def _rewrite_rate(room: Room, swept: Swept) -> tuple[Figure, ...]:
    """Bytes read and written a second while a pattern is verified and the next takes its place: the usual pass.

    The first pass is left out, because the device may still be writing when it is asked for.
    """
    passes = [after - before for before, after in itertools.pairwise(swept.stood)][1:]
    rate = 2 * room.taken.taken_bytes / statistics.median(passes) / 1e9
    setting = f"{counted(len(swept.patterns), 'pattern')}, {room.doing}"
    return (Figure(name="rewrite_rate", value=rate, unit="GB/s", setting=setting),)

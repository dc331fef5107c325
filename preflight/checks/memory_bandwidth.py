"""Bandwidth of memory: copied, filled and read, at sizes beyond every cache, with all that was moved verified afterwards.

Each target of a copy is poisoned first with the opposite of what it is about to hold, and every round moves other words. So work
that was skipped, or done only in part, is seen as wrong words and not as a good rate.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator

import msgspec

from preflight.check_context import Context, Device
from preflight.checks.cache_sizes import read_host_cache_bytes
from preflight.checks.memory_allocation import AllocatedMemory, allocate_test_memory, warm_up_kernels
from preflight.checks.memory_diagnosis import Diagnosis, MemoryFaultKind, build_failed_result
from preflight.checks.memory_traffic import KINDS, MemoryTraffic, TransferResult
from preflight.kernels.memory_patterns import ALL_BITS, GATE
from preflight.results import Figure, Location, Outcome, Result

TEST = "memory_bandwidth"
ROUNDS_MIN = 3  # a median of fewer is any one of them
BEYOND_CACHE = 2  # times the cache: then most of it is gone before it is needed again


def check_memory_bandwidth(context: Context) -> Iterator[Result]:
    """One result for this process's device."""
    if context.device is not None:
        yield measure_bandwidth(context, context.device)


def measure_bandwidth(context: Context, device: Device) -> Result:
    """Rounds of every kind of traffic, at least three; the rate is the median."""
    room = allocate_test_memory(device, context.note)
    if not room.pieces:
        return room.empty(TEST)
    if not device.on_host:
        warm_up_kernels(room.way, device, GATE[:2])
    traffic = MemoryTraffic(room, context.fault)
    seen: dict[str, list[TransferResult]] = {name: [] for name in KINDS}
    began = time.perf_counter()
    for number in itertools.count(1):
        for name, move in KINDS.items():
            context.note(f"{device.name}: round {number}, {name}")
            moved = move(traffic, number)
            if moved.wrong:
                return _build_failed_result(room, name, moved)
            seen[name].append(moved)
        if number >= ROUNDS_MIN and (time.perf_counter() - began) * (number + 1) / number > context.seconds:
            break
    return _build_passed_result(room, seen)


def _build_passed_result(room: AllocatedMemory, seen: dict[str, list[TransferResult]]) -> Result:
    where = room.doing if room.device.on_host else ""  # it is torch that moves, whatever verifies
    rates = {name: [each.moved_bytes / each.seconds / 1e9 for each in moved] for name, moved in seen.items()}
    figures = tuple(
        Figure(name=name, value=statistics.median(values), unit="GB/s", setting=where) for name, values in rates.items()
    )
    slowest = {f"{name}_lowest": round(min(values), 3) for name, values in rates.items()}
    result = room.passed(TEST, (*room.figures, *figures), {"rounds": len(seen["copy_rate"]), **slowest})
    cache = read_host_cache_bytes() if room.device.on_host else 0
    if room.taken.taken_bytes < BEYOND_CACHE * cache:
        said = (
            f"{room.taken.taken_bytes >> 20} MiB were moved, and the processor's cache holds {cache >> 20} MiB: "
            "the rates are partly the cache's"
        )
        result = msgspec.structs.replace(result, remarks=(*result.remarks, said))
    return result


def _build_failed_result(room: AllocatedMemory, name: str, moved: TransferResult) -> Result:
    """What was moved is wrong: the words that are, or a sum that is while its words are right."""
    so_far = room.passed(TEST, (), {"traffic": name})
    if moved.errors.wrong:
        stale = all(word.actual ^ word.expected == ALL_BITS for word in moved.errors.listed)
        words = (
            "they are what was there before: the work was not done" if stale else "what was moved is not what was there"
        )
        return build_failed_result(so_far, [moved.errors], Diagnosis(MemoryFaultKind.MISMOVED, words), room.device)
    evidence = so_far.evidence | {"kind": MemoryFaultKind.MISREAD.value}
    reason = f"{moved.misread}, though every word is right when verified: read or added wrongly"
    where = (Location(gpu=room.device.uuid or room.device.name),)
    return msgspec.structs.replace(so_far, outcome=Outcome.FAIL, reason=reason, evidence=evidence, locations=where)

"""Memory bandwidth: copy, fill and read at sizes beyond every cache, with verification of all moved data.

Each target of a copy first gets the complement of the expected data, and every round moves other words. So skipped or
incomplete work shows as wrong words, not as a high rate.
"""

from __future__ import annotations

import itertools
import statistics
import time

import msgspec

from preflight.check_context import Context, Device
from preflight.checks.cache_sizes import read_host_cache_bytes
from preflight.checks.memory_allocation import AllocatedMemory, allocate_test_memory, warm_up_kernels
from preflight.checks.memory_diagnosis import Diagnosis, MemoryFaultKind, build_failed_result
from preflight.checks.memory_traffic import KINDS, MemoryTraffic, TransferResult
from preflight.checks.torch_devices import run_on_device
from preflight.kernels.memory_patterns import ALL_BITS, GATE
from preflight.results import Figure, Location, Outcome, Result

TEST = "memory_bandwidth"
ROUNDS_MIN = 3  # the minimum for a meaningful median
BEYOND_CACHE = 2  # times the cache size, so that most data is evicted before reuse


@run_on_device
def check_memory_bandwidth(context: Context, device: Device) -> Result:
    """At least three rounds of every kind of traffic; the rate is the median."""
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
    where = room.doing if room.device.on_host else ""  # torch moves the data, whatever verifies it
    rates = {name: [each.moved_bytes / each.seconds / 1e9 for each in moved] for name, moved in seen.items()}
    figures = tuple(
        Figure(name=name, value=statistics.median(values), unit="GB/s", setting=where) for name, values in rates.items()
    )
    slowest = {f"{name}_lowest": round(min(values), 3) for name, values in rates.items()}
    result = room.passed(TEST, (*room.figures, *figures), {"rounds": len(seen["copy_rate"]), **slowest})
    cache = read_host_cache_bytes() if room.device.on_host else 0
    if room.taken.taken_bytes < BEYOND_CACHE * cache:
        said = (
            f"{room.taken.taken_bytes >> 20} MiB were copied, but the CPU cache holds {cache >> 20} MiB: "
            "the rates partly measure the cache"
        )
        result = msgspec.structs.replace(result, remarks=(*result.remarks, said))
    return result


def _build_failed_result(room: AllocatedMemory, name: str, moved: TransferResult) -> Result:
    """The moved data is wrong: the wrong words, or a wrong sum of correct words."""
    so_far = room.passed(TEST, (), {"traffic": name})
    if moved.errors.wrong:
        stale = all(word.actual ^ word.expected == ALL_BITS for word in moved.errors.listed)
        words = (
            "the destination still holds the old data: the copy was not done"
            if stale
            else "the copy differs from the source"
        )
        return build_failed_result(so_far, [moved.errors], Diagnosis(MemoryFaultKind.MISMOVED, words), room.device)
    evidence = so_far.evidence | {"kind": MemoryFaultKind.MISREAD.value}
    reason = f"{moved.misread}, though every word is correct when verified: a read or an addition was wrong"
    where = (Location(gpu=room.device.uuid or room.device.name),)
    return msgspec.structs.replace(so_far, outcome=Outcome.FAIL, reason=reason, evidence=evidence, locations=where)

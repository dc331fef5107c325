"""Host memory: random patterns over a share of the free memory, written completely before verification; and its bandwidth.

Threads on each NUMA node test the memory of that node. The kernel's memory error counters are read before and after: ECC
modules correct most errors, which only the counters show.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np

from preflight.check_context import Context
from preflight.host import edac_counters
from preflight.host.host_patterns import (
    TILE_WORDS,
    WrongWord,
    build_tile,
    derive_block_key,
    find_wrong_words,
    write_block,
)
from preflight.host.memory_budget import compute_memory_budget, distribute_over_zones
from preflight.host.memory_shares import (
    PIECE_BYTES,
    MemoryShare,
    OomVictimPreference,
    StepTiming,
    compute_zone_rates,
    find_physical_page,
    run_on_all_shares,
    split_zones,
)
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine

TEST = "host_memory"
ROOM_BYTES_MIN = 4 * PIECE_BYTES
LISTED_MAX = 8
TAKING_SHARE = 0.35  # of the test's time; memory that cannot be allocated by then is not tested
COPIES_MIN = 2
SLOW_FACTOR = 10
_SEED = 20_260_801
_clock = time.perf_counter


class PlacedWrongWord(msgspec.Struct, frozen=True):
    """One wrong word at an offset from the start of all test memory; `page` is its physical address, `again` if it persists."""

    word: WrongWord
    page: str
    again: bool


class VerifiedShare(msgspec.Struct, frozen=True):
    """The findings of one thread."""

    done: StepTiming
    count: int
    listed: tuple[PlacedWrongWord, ...]


def check_host_memory(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for the node."""
    machine = machine or Machine()
    left = compute_memory_budget(machine, context.level)
    if left < ROOM_BYTES_MIN:
        reason = f"only {left >> 20} MiB of host memory can be allocated, {ROOM_BYTES_MIN >> 20} are needed; stop the processes that use it"
        yield Result(test=TEST, outcome=Outcome.ERROR, reason=reason)
        return
    before = edac_counters.read_edac_counts(machine)
    all_shares = split_zones(distribute_over_zones(machine, left, sorted(os.sched_getaffinity(0))))
    try:
        with OomVictimPreference(), ThreadPoolExecutor(len(all_shares)) as pool:
            found = _MemoryRun(context, pool, all_shares).all_patterns()
    finally:
        for share in all_shares:
            share.give_back()
    yield judge_host_memory(
        found, edac_counters.judge_edac_growth(before, edac_counters.read_edac_counts(machine)), len(before)
    )


class MemoryFindings(msgspec.Struct, frozen=True):
    """The findings of the run: figures, amount tested, and errors by pattern."""

    figures: tuple[Figure, ...]
    bytes_: int
    patterns: int
    pattern: str = ""
    count: int = 0
    listed: tuple[PlacedWrongWord, ...] = ()


def judge_host_memory(found: MemoryFindings, errors: tuple[Sequence[str], Sequence[str]], modules: int) -> Result:
    """Wrong words fail; so do errors counted by the memory modules. Pure."""
    faults, remarks = errors
    reasons = list(faults)
    evidence: Evidence = {"bytes": found.bytes_, "patterns": found.patterns, "modules_watched": modules}
    if found.count:
        first = found.listed[0]
        kind = "wrong when read again" if first.again else "right when read again"
        reasons.insert(0, f"{found.count} wrong words in {found.pattern}, first {first.word} ({kind})")
        bits = int(
            np.bitwise_or.reduce([wrong.word.expected ^ wrong.word.found for wrong in found.listed], dtype=np.uint64)
        )
        evidence |= {"pattern": found.pattern, "wrong_words": found.count, "wrong_bits": f"{bits:#018x}"}
        evidence["errors"] = "; ".join(str(wrong.word) for wrong in found.listed)
    return Result(
        test=TEST,
        outcome=Outcome.FAIL if reasons else Outcome.PASS,
        reason="; ".join(reasons),
        figures=found.figures,
        locations=tuple(Location(address=f"{one.word.offset:#x}", page=one.page) for one in found.listed),
        remarks=tuple(remarks),
        evidence=evidence,
    )


class _MemoryRun:
    """One running test."""

    def __init__(self, context: Context, pool: ThreadPoolExecutor, all_shares: list[MemoryShare]) -> None:
        self._context, self._pool, self._shares = context, pool, all_shares
        self._tile = build_tile(_SEED + os.getpid())
        self._ends = _clock() + context.seconds
        self._taking_ends = _clock() + TAKING_SHARE * context.seconds
        self._rates: dict[str, dict[int, float]] = {}

    def all_patterns(self) -> MemoryFindings:
        """Run pairs of patterns until the time is up, at least one pair; then copies."""
        self._context.note("allocating host memory")
        run_on_all_shares(self._pool, self._take, self._shares)
        size = sum(len(share.pieces) for share in self._shares) * PIECE_BYTES
        pattern = 0
        while pattern < 2 or _clock() < self._ends:
            if found := self._pattern(pattern, size, commit=self._context.fault == "bit_flip" and pattern == 1):
                return found
            pattern += 1
        self._context.note("copying")
        copied = run_on_all_shares(self._pool, self._copy, self._shares)
        if found := self._verify(pattern - 1, size, "the copies"):
            return found
        self._rates["host_copy_rate"] = compute_zone_rates(copied)
        return MemoryFindings(self._figures(), size, pattern)

    def _pattern(self, pattern: int, size: int, *, commit: bool) -> MemoryFindings | None:
        self._context.note(f"writing pattern {pattern} to {size >> 20} MiB")
        written = run_on_all_shares(self._pool, lambda share: self._write(share, pattern), self._shares)
        self._keep_best("host_write_rate", compute_zone_rates(written))
        if commit:
            share = self._shares[-1]
            share.pieces[len(share.pieces) // 2][77] ^= np.uint64(1 << 21)
        return self._verify(pattern, size, f"pattern {pattern}")

    def _verify(self, pattern: int, size: int, what: str) -> MemoryFindings | None:
        self._context.note(f"verifying {what}")
        copies = what == "the copies"
        parts = run_on_all_shares(self._pool, lambda share: self._check(share, pattern, copies=copies), self._shares)
        if not copies:
            self._keep_best("host_verify_rate", compute_zone_rates([part.done for part in parts]))
        if count := sum(part.count for part in parts):
            listed = tuple(one for part in parts for one in part.listed)[:LISTED_MAX]
            return MemoryFindings(self._figures(), size, pattern + 1, what, count, listed)
        return None

    def _take(self, share: MemoryShare) -> None:
        share.scratch = np.empty(TILE_WORDS, dtype=np.uint64)
        while (len(share.pieces) < COPIES_MIN or _clock() < self._taking_ends) and (piece := share.take()) is not None:
            write_block(piece, self._tile, 0)  # the first write allocates the page, on this thread's node

    def _write(self, share: MemoryShare, pattern: int) -> StepTiming:
        began = _clock()
        for number, piece in enumerate(share.pieces, share.first):
            write_block(piece, self._tile, derive_block_key(pattern, number))
        return StepTiming(share.zone.numa, began, _clock(), len(share.pieces) * PIECE_BYTES)

    def _check(self, share: MemoryShare, pattern: int, *, copies: bool) -> VerifiedShare:
        began, count, listed = _clock(), 0, []
        for place, piece in enumerate(share.pieces):
            number = share.first + (place - place % 2 if copies and place < len(share.pieces) // 2 * 2 else place)
            mark = derive_block_key(pattern, number)
            found, words = find_wrong_words(piece, self._tile, mark, share.scratch, LISTED_MAX)
            count += found
            for word in words:
                again = int(piece[word.offset // 8]) == word.found
                placed = msgspec.structs.replace(word, offset=(share.first + place) * PIECE_BYTES + word.offset)
                listed.append(PlacedWrongWord(placed, find_physical_page(piece, word.offset), again))
        done = StepTiming(share.zone.numa, began, _clock(), len(share.pieces) * PIECE_BYTES)
        return VerifiedShare(done, count, tuple(listed))

    def _copy(self, share: MemoryShare) -> StepTiming:
        """Copy every second piece to its neighbour, whose other content exposes a copy that does nothing."""
        began, moved = _clock(), 0
        for source, target in zip(share.pieces[0::2], share.pieces[1::2], strict=False):
            for _ in range(SLOW_FACTOR if self._context.fault == "slow" else 1):
                np.copyto(target, source)
            moved += 2 * PIECE_BYTES  # read and written
        return StepTiming(share.zone.numa, began, _clock(), moved)

    def _keep_best(self, name: str, now: dict[int, float]) -> None:
        best = self._rates.setdefault(name, {})
        for zone, rate in now.items():
            best[zone] = max(rate, best.get(zone, 0.0))

    def _figures(self) -> tuple[Figure, ...]:
        threads = {share.zone.numa: share.zone.threads for share in self._shares}
        return tuple(
            Figure(
                name=name,
                value=round_to_four_digits(rate),
                unit="GB/s",
                setting=f"numa {zone}, {threads[zone]} threads",
            )
            for name, by_zone in self._rates.items()
            for zone, rate in by_zone.items()
        )

"""Host memory of a test, allocated in pieces by threads near it, released when the context ends."""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from preflight.host.host_patterns import Words, view_as_words
from preflight.host.memory_budget import MemoryZone

PIECE_BYTES = 32 << 20
PAGE_BYTES = 4096
_PRESENT, _FRAME = 1 << 63, (1 << 55) - 1
_OOM = Path("/proc/self/oom_score_adj")
_FIRST_TO_GO = "1000"

T = TypeVar("T")
Clock = Callable[[], float]


class MemoryShare:
    """One thread's share of its zone. `first` numbers its first piece among all."""

    def __init__(self, zone: MemoryZone, first: int, pieces_max: int) -> None:
        self.zone, self.first, self.pieces_max = zone, first, pieces_max
        self.memory: list[mmap.mmap] = []
        self.pieces: list[Words] = []
        self.scratch: Words = np.empty(0, dtype=np.uint64)

    def take(self) -> Words | None:
        """One more piece, from the calling thread's node; None when the share is complete or no memory is left."""
        if len(self.pieces) >= self.pieces_max:
            return None
        try:
            memory = mmap.mmap(-1, PIECE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            return None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        self.memory.append(memory)
        self.pieces.append(view_as_words(memory))
        return self.pieces[-1]

    def give_back(self) -> None:
        """Release everything."""
        self.pieces.clear()
        for memory in self.memory:
            with contextlib.suppress(BufferError):  # the traceback of a failed step still holds a piece
                memory.close()
        self.memory.clear()


class StepTiming(msgspec.Struct, frozen=True):
    """One thread's work in one step."""

    zone: int
    began: float
    ended: float
    bytes_: int


def split_zones(zones: Iterable[MemoryZone]) -> list[MemoryShare]:
    """An equal share of its zone for each thread; at least two pieces, so that one can be copied to the other."""
    found: list[MemoryShare] = []
    first = 0
    for zone in zones:
        pieces = max(2, zone.bytes_ // PIECE_BYTES // zone.threads)
        for _ in range(zone.threads):
            found.append(MemoryShare(zone, first, pieces))
            first += pieces
    return found


def run_on_all_shares(
    pool: ThreadPoolExecutor, step: Callable[[MemoryShare], T], all_shares: Sequence[MemoryShare]
) -> list[T]:
    """Run `step` on every share at once, each in a thread near its memory."""

    def beside(share: MemoryShare) -> T:
        os.sched_setaffinity(0, share.zone.cpus)  # 0 is the calling thread, not the process
        return step(share)

    return list(pool.map(beside, all_shares))


def compute_zone_rates(done: Sequence[StepTiming]) -> dict[int, float]:
    """GB/s of each zone: its bytes over the time from its first thread's start to its last thread's end. Pure."""
    found = {}
    for zone in sorted({part.zone for part in done}):
        parts = [part for part in done if part.zone == zone]
        seconds = max(part.ended for part in parts) - min(part.began for part in parts)
        if seconds > 0:
            found[zone] = sum(part.bytes_ for part in parts) / seconds / 1e9
    return found


def find_physical_page(words: Words, offset: int) -> str:
    """The physical address of the page that holds byte `offset`, hexadecimal; empty if the kernel hides it."""
    address = words.ctypes.data + offset
    try:
        with Path("/proc/self/pagemap").open("rb", buffering=0) as file:
            entry = int.from_bytes(os.pread(file.fileno(), 8, address // PAGE_BYTES * 8), "little")
    except OSError:
        return ""
    frame = entry & _FRAME
    return f"{frame * PAGE_BYTES + address % PAGE_BYTES:#x}" if entry & _PRESENT and frame else ""


class OomVictimPreference:
    """Makes the kernel kill this process first when memory is short: a test must never cost a node its daemons."""

    def __enter__(self) -> None:
        """Raise the OOM score."""
        self._before = _OOM.read_text().strip() if _OOM.exists() else ""
        self._write(_FIRST_TO_GO)

    def __exit__(self, *_: object) -> None:
        """Restore it."""
        self._write(self._before)

    def _write(self, value: str) -> None:
        try:
            if value:
                _OOM.write_text(value)
        except OSError:
            return

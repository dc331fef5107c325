"""Scratch storage: write, flush, read back and compare every word; throughput, latency of small writes, free space.

The folders are in HEALTHD_PREFLIGHT_PATHS (colon-separated; default: the folder for temporary files), with one result
each. The test file is unnamed, so that nothing remains however the test ends.
"""

from __future__ import annotations

import errno
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from preflight.check_context import Context
from preflight.host.host_patterns import (
    TILE_WORDS,
    WrongWord,
    build_tile,
    derive_block_key,
    find_wrong_words,
    write_block,
)
from preflight.host.memory_budget import compute_memory_budget
from preflight.host.scratch_file import PAGE_BYTES, ScratchFile, allocate_aligned_buffer
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine
from vocabulary.hardware.mount_table import Mount, parse_mount_table

TEST = "storage"
PATHS_VARIABLE = "HEALTHD_PREFLIGHT_PATHS"
BLOCK_BYTES = 4 << 20
BYTES_MAX = {"gate": 64 << 20, "standard": 2 << 30, "burn-in": 16 << 30}
FREE_SHARE_MAX = 0.1  # of the free space: a test must not fill a disk
FREE_SHARE_MIN = 0.01  # of the total: below it the next job fails
READ_SHARE_MIN = 0.25  # of the written data, however long that takes
SMALL_MAX = 1000
LISTED_MAX = 8
SLOW_FACTOR = 10
_WRITING, _READING, _SYNCING = 0.5, 0.8, 0.95  # end of each phase, as a share of the test's time
_clock = time.perf_counter

# What a file system error means: outcome, whether it is a configuration error, and what to do.
_MEANINGS = {
    errno.ENOENT: (Outcome.NOT_RUN, True, f"mount or create it, or remove it from {PATHS_VARIABLE}"),
    errno.ENOTDIR: (Outcome.NOT_RUN, True, f"name a folder in {PATHS_VARIABLE}"),
    errno.EACCES: (Outcome.NOT_RUN, True, "let the user that runs preflight write there"),
    errno.EPERM: (Outcome.NOT_RUN, True, "let the user that runs preflight write there"),
    errno.EROFS: (
        Outcome.FAIL,
        False,
        "the kernel remounts read-only after errors: read the kernel log, check the disk, then mount it again",
    ),
    errno.ENOSPC: (Outcome.FAIL, False, "it is full: remove files left by old jobs"),
    errno.EDQUOT: (Outcome.FAIL, False, "the quota is used up: remove files left by old jobs"),
}
_ELSE = (Outcome.FAIL, False, "check the disk or the file server, and the kernel log")


class DiskSpace(msgspec.Struct, frozen=True):
    """Free space of a file system, in bytes and files. `files` is 0 if it has no such limit."""

    total: int
    free: int
    files: int
    files_free: int


class StorageMeasurement(msgspec.Struct, frozen=True):
    """Measurements in one folder: total seconds and bytes, durations of single calls, and wrong words."""

    direct: bool
    written: int
    write_s: float
    read: int
    read_s: float
    syncs: tuple[float, ...]
    reads: tuple[float, ...]
    count: int
    listed: tuple[WrongWord, ...]


def check_storage(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result per folder."""
    machine = machine or Machine()
    folders = [Path(word) for word in os.environ.get(PATHS_VARIABLE, "").split(":") if word]
    for folder in folders or [Path(tempfile.gettempdir())]:
        yield _check_folder(context, folder, machine)


def _check_folder(context: Context, folder: Path, machine: Machine) -> Result:
    try:
        context.note(f"{folder}: reading its file system")
        real = folder.resolve(strict=True)
        mount = find_mount(str(real), machine.text("/proc/self/mounts") or "") or Mount("", str(real), "unknown", ())
        space = _read_space(real)
        if reason := explain_lack_of_space(space):
            return _build_result(folder, Outcome.FAIL, f"{folder}: {reason}", evidence=_build_evidence(mount, space))
        size = min(BYTES_MAX.get(context.level, BYTES_MAX["gate"]), int(space.free * FREE_SHARE_MAX))
        if mount.type == "tmpfs":
            size = min(size, compute_memory_budget(machine, "gate"))
        measured = _StorageRun(context, real, max(1, size // BLOCK_BYTES)).measure()
    except OSError as error:
        outcome, misconfigured, todo = _explain_os_error(error, folder, machine)
        reason = f"{folder}: {error.strerror or error}; {todo}"
        return _build_result(folder, outcome, reason, misconfigured=misconfigured)
    return judge_storage(folder, mount, space, measured)


def _explain_os_error(error: OSError, folder: Path, machine: Machine) -> tuple[Outcome, bool, str]:
    mounts = machine.text("/proc/self/mountinfo") or ""
    if error.errno == errno.EROFS and is_mounted_read_only(str(folder.resolve()), mounts):
        return (
            Outcome.NOT_RUN,
            True,
            f"it is mounted read-only: mount it for writing, or remove it from {PATHS_VARIABLE}",
        )
    return _MEANINGS.get(error.errno or 0, _ELSE)


def find_mount(path: str, mounts: str) -> Mount | None:
    """The file system that holds the absolute `path`, from the text of ``/proc/self/mounts``; the last mount on a point counts."""
    best: Mount | None = None
    for mount in parse_mount_table(mounts):
        below = path == mount.point or path.startswith(f"{mount.point.rstrip('/')}/")
        if below and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_mounted_read_only(path: str, mountinfo: str) -> bool:
    """Whether the file system of `path` was mounted read-only on purpose, from the text of ``/proc/self/mountinfo``.

    The kernel, on errors, makes the file system read-only and does not change the mount's own options.
    """
    lines = (line.split(" ") for line in mountinfo.split("\n"))
    mounts = "\n".join(f"- {words[4]} - {words[5]}" for words in lines if len(words) > 5)
    mount = find_mount(path, mounts)
    return mount is not None and "ro" in mount.options


def explain_lack_of_space(space: DiskSpace) -> str:
    """Why the free space is insufficient; empty if it suffices. Pure."""
    if space.free < max(2 * BLOCK_BYTES, FREE_SHARE_MIN * space.total):
        return f"{space.free >> 20} MiB of {space.total >> 20} MiB are free; remove files left by old jobs"
    if space.files and space.files_free < FREE_SHARE_MIN * space.files:
        return f"{space.files_free} of {space.files} files can still be created; remove files left by old jobs"
    return ""


def judge_storage(folder: Path, mount: Mount, space: DiskSpace, measured: StorageMeasurement) -> Result:
    """The result for a writable folder. Pure."""
    way = "direct" if measured.direct else "buffered"
    large, small = (f"{mount.point}, {size}, {way}" for size in (f"{BLOCK_BYTES >> 20} MiB", f"{PAGE_BYTES >> 10} KiB"))
    figures = [
        Figure(name=name, value=round_to_four_digits(bytes_ / seconds / 1e9), unit="GB/s", setting=large)
        for name, bytes_, seconds in (
            ("storage_write_rate", measured.written, measured.write_s),
            ("storage_read_rate", measured.read, measured.read_s),
        )
        if seconds > 0
    ]
    figures += [
        Figure(name=name, value=round_to_four_digits(compute_percentile(seconds, 99) * 1e6), unit="us", setting=small)
        for name, seconds in (("storage_sync_p99", measured.syncs), ("storage_read_p99", measured.reads))
        if seconds
    ]
    remarks = []
    if mount.type in ("tmpfs", "ramfs"):
        remarks.append(f"{folder} is in memory ({mount.type}): no disk was tested")
    elif not measured.direct:
        remarks.append(f"{folder} ({mount.type}) does not support direct I/O: reads may have come from the page cache")
    if measured.read < measured.written:
        share = 100 * measured.read / measured.written
        remarks.append(
            f"{folder}: the time limit allowed {share:.0f} % of the written data to be read back; the rest is not verified"
        )
    reason = ""
    if measured.count:
        reason = (
            f"{folder}: {measured.count} words differ from those written, first {measured.listed[0]}; replace the disk"
        )
    return _build_result(
        folder,
        Outcome.FAIL if reason else Outcome.PASS,
        reason,
        evidence=_build_evidence(mount, space)
        | {"bytes": measured.written, "bytes_verified": measured.read, "errors": "; ".join(map(str, measured.listed))},
        figures=tuple(figures),
        remarks=tuple(remarks),
    )


def compute_percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed. Pure."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


class _StorageRun:
    """One folder under test."""

    def __init__(self, context: Context, folder: Path, blocks_max: int) -> None:
        self._context, self._folder, self._blocks_max = context, folder, blocks_max
        self._mark = int.from_bytes(os.urandom(3), "big") << 1  # differs from data that an earlier run left on the disk
        self._tile, self._scratch = build_tile(os.getpid()), np.empty(TILE_WORDS, dtype=np.uint64)
        self._block, self._page = allocate_aligned_buffer(BLOCK_BYTES), allocate_aligned_buffer(PAGE_BYTES)
        self._began = _clock()

    def _until(self, share: float) -> bool:
        return _clock() - self._began < share * self._context.seconds

    def measure(self) -> StorageMeasurement:
        """Write, flush, read back; then small flushed writes, and small reads."""
        with ScratchFile(self._folder) as file:
            self._context.note(f"{self._folder}: writing")
            blocks, write_s = self._write(file)
            self._context.note(f"{self._folder}: flushing")
            write_s += file.flush()
            file.forget_cached()
            order = np.random.default_rng(self._mark).permutation(blocks).tolist()
            if self._context.fault == "wrong_bytes":
                self._spoil(file, order[0])
            self._context.note(f"{self._folder}: reading back")
            read, read_s, count, listed = self._read(file, order)
            self._context.note(f"{self._folder}: small writes, each flushed")
            syncs, places = self._sync_small(file, blocks)
            file.forget_cached()
            self._context.note(f"{self._folder}: small reads")
            reads, more, also = self._read_small(file, places)
        return StorageMeasurement(
            direct=file.direct,
            written=blocks * BLOCK_BYTES,
            write_s=write_s,
            read=read * BLOCK_BYTES,
            read_s=read_s,
            syncs=tuple(syncs),
            reads=tuple(reads),
            count=count + more,
            listed=(*listed, *also)[:LISTED_MAX],
        )

    def _write(self, file: ScratchFile) -> tuple[int, float]:
        seconds, blocks = 0.0, 0
        while blocks < self._blocks_max and (not blocks or self._until(_WRITING)):
            if self._context.fault == "full" and blocks:
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (injected)")
            write_block(self._block, self._tile, derive_block_key(self._mark, blocks))
            for _ in range(SLOW_FACTOR if self._context.fault == "slow" else 1):
                seconds += file.write(self._block, blocks * BLOCK_BYTES)
            blocks += 1
        return blocks, seconds

    def _read(self, file: ScratchFile, order: Sequence[int]) -> tuple[int, float, int, list[WrongWord]]:
        """Read in random order until the time is up: in sequential order, the end might never be read."""
        seconds, count, read = 0.0, 0, 0
        listed: list[WrongWord] = []
        for block in order:
            self._block.fill(0)
            seconds += file.read(self._block, block * BLOCK_BYTES)
            read += 1
            found, words = find_wrong_words(
                self._block, self._tile, derive_block_key(self._mark, block), self._scratch, LISTED_MAX
            )
            count += found
            listed += [msgspec.structs.replace(one, offset=one.offset + block * BLOCK_BYTES) for one in words]
            if not self._until(_READING) and read >= READ_SHARE_MIN * len(order):
                break
        return read, seconds, count, listed[:LISTED_MAX]

    def _sync_small(self, file: ScratchFile, blocks: int) -> tuple[list[float], list[int]]:
        pages = blocks * BLOCK_BYTES // PAGE_BYTES
        order = np.random.default_rng(self._mark).permutation(pages)[:SMALL_MAX].tolist()
        seconds: list[float] = []
        for page in order:
            write_block(self._page, self._tile, derive_block_key(self._mark + 2, page))
            seconds.append(file.write(self._page, page * PAGE_BYTES) + file.flush())
            if not self._until(_SYNCING):
                break
        return seconds, order[: len(seconds)]

    def _read_small(self, file: ScratchFile, places: Sequence[int]) -> tuple[list[float], int, list[WrongWord]]:
        seconds, count = [], 0
        listed: list[WrongWord] = []
        for page in reversed(places):
            seconds.append(file.read(self._page, page * PAGE_BYTES))
            found, words = find_wrong_words(
                self._page, self._tile, derive_block_key(self._mark + 2, page), self._scratch, LISTED_MAX
            )
            count += found
            listed += [msgspec.structs.replace(one, offset=one.offset + page * PAGE_BYTES) for one in words]
        return seconds, count, listed[:LISTED_MAX]

    def _spoil(self, file: ScratchFile, block: int) -> None:
        """The injected fault: one flipped bit on disk."""
        file.read(self._page, block * BLOCK_BYTES)
        self._page[77] ^= np.uint64(1 << 21)
        file.write(self._page, block * BLOCK_BYTES)
        file.flush()


def _read_space(folder: Path) -> DiskSpace:
    told = os.statvfs(folder)
    return DiskSpace(told.f_blocks * told.f_frsize, told.f_bavail * told.f_frsize, told.f_files, told.f_favail)


def _build_evidence(mount: Mount, space: DiskSpace) -> Evidence:
    return {
        "file_system": mount.type,
        "disk": mount.device,
        "mounted_on": mount.point,
        "free_gib": round(space.free / (1 << 30), 1),
        "files_free": space.files_free,
    }


def _build_result(
    folder: Path,
    outcome: Outcome,
    reason: str,
    *,
    misconfigured: bool = False,
    evidence: Evidence | None = None,
    figures: tuple[Figure, ...] = (),
    remarks: tuple[str, ...] = (),
) -> Result:
    return Result(
        test=TEST,
        outcome=outcome,
        reason=reason,
        misconfigured=misconfigured,
        locations=(Location(path=str(folder)),) if outcome is Outcome.FAIL else (),
        evidence={name: value for name, value in (evidence or {}).items() if value != ""},
        figures=figures,
        remarks=remarks,
    )

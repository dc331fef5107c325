"""Copies of ranks' states in a memory file system: which exist, and which of them make a complete step.

    DIRECTORY/step-000000042-of-8-rank-3-save-1f09ac3e-blake3-DIGEST.copy
    DIRECTORY/step-000000042-of-8-rank-3-replica-save-1f09ac3e-DIGEST.copy    with SHA-256

The name carries the checksum of the content, so a copy can be verified by itself. The directory belongs to one node and
one job; the node's ranks may share it. Uses no framework.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import shutil
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError, FileEntry, measure_file
from healthd.trainer.checkpoint_storage.checksums import SHA256, Checksum, ChecksumUnavailableError

STALE_SECONDS = (
    24 * 3600.0
)  # a running job copies every half minute; an older copy belongs to a job that is not resumed
_log = logging.getLogger("healthd.trainer")
_NAME = re.compile(
    r"step-(\d{9,})-of-(\d+)-rank-(\d+)(-replica)?-save-([0-9a-f]{8})-(?:(blake3)-)?([0-9a-f]{64})\.copy"
)


class StateCopy(NamedTuple):
    """The state of one rank after one step, of a job of `world` ranks.

    `save` is the same for all ranks, and another each time a step is saved: copies of one step that was trained twice, by
    different generations of a process group, are never mixed. `replica`: every rank held the same state then, so that this
    copy alone is enough for a job of any number of ranks.
    """

    step: int
    world: int
    rank: int
    save: str
    checksum: Checksum
    replica: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        rank = f"{self.rank}-replica" if self.replica else str(self.rank)
        algorithm = "" if self.checksum.algorithm == SHA256 else f"{self.checksum.algorithm}-"
        return (
            f"step-{self.step:09d}-of-{self.world}-rank-{rank}-save-{self.save}-{algorithm}{self.checksum.digest}.copy"
        )


def prepare_private_directory(directory: Path) -> None:
    """Create a directory that only this user can write to, so that its content is this user's too.

    Raises:
        CheckpointError: it exists and belongs to another user, or others may write to it.
        OSError: a file operation failed.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise CheckpointError(
            f"{directory}: is not private to this user, so it is not used for state copies in memory:"
            " delete it, or start without --swap"
        )


def delete_stale_copies(directory: Path, *, but: Path, now: float | None = None) -> list[Path]:
    """Delete the copies of runs that ended long ago and never finished: they would hold the node's memory until it reboots.

    Args:
        directory: of one user, with a folder for each job and below it one for each run.
        but: the folder of the current run.
        now: Unix seconds; None: the system clock.

    Returns:
        The folders that were deleted.
    """
    oldest = (time.time() if now is None else now) - STALE_SECONDS
    stale = [run for run in directory.glob("*/*") if run != but and _find_last_change(run) < oldest]
    for run in stale:
        shutil.rmtree(run, ignore_errors=True)  # another rank of this node may delete it at the same time
        with contextlib.suppress(OSError):  # the job has other runs
            run.parent.rmdir()
    return stale


def _find_last_change(folder: Path) -> float:
    """When something below a folder was last created, written or deleted; infinite where that cannot be read."""
    try:
        return max(path.lstat().st_mtime for path in (folder, *folder.rglob("*")))
    except OSError:
        return math.inf


class StateCopies:
    """The copies that one node holds."""

    def __init__(self, directory: Path) -> None:
        """Args: `directory`: on tmpfs; created when first needed."""
        self.directory = directory

    def held(self) -> list[StateCopy]:
        """Return the finished copies; none if others may write to the directory, as copies are unpickled."""
        try:
            if foreign := self._foreign():
                _log.warning("state copies in memory not used: %s", foreign)
                return []
            names = sorted(path.name for path in self.directory.iterdir())
        except FileNotFoundError:
            return []
        found = [_NAME.fullmatch(name) for name in names]
        return [
            StateCopy(int(each[1]), int(each[2]), int(each[3]), each[5], _parse_checksum(each), bool(each[4]))
            for each in found
            if each
        ]

    def path(self, copy: StateCopy) -> Path:
        """Return the path of its file."""
        return self.directory / copy.name

    def aside(self, what: str, rank: int) -> Path:
        """Return a rank's temporary name for writing a copy; leftovers of a crash are overwritten.

        Raises:
            CheckpointError: the directory is not this user's alone.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if foreign := self._foreign():
            raise CheckpointError(foreign)
        return self.directory / f".{what}-{rank}"

    def _foreign(self) -> str:
        status = self.directory.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return f"{self.directory}: not a directory"
        ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        return "" if ours else f"{self.directory}: belongs to another user, or others may write to it"

    def finish(self, aside: Path, copy: StateCopy) -> None:
        """Rename the written file to the finished copy."""
        aside.rename(self.path(copy))

    def check(self, copy: StateCopy) -> FileEntry:
        """Verify a copy's content.

        Raises:
            CheckpointError: it is missing, does not match its name, or cannot be verified here.
        """
        try:
            entry = measure_file(self.path(copy), copy.checksum.algorithm)
        except OSError as error:
            raise CheckpointError(f"{self.path(copy)}: {error.strerror}") from error
        except ChecksumUnavailableError as error:
            raise CheckpointError(f"{self.path(copy)}: {error}") from error
        if entry.checksum != copy.checksum:
            raise CheckpointError(f"{self.path(copy)}: its content does not match its name")
        return entry

    def forget(self, *, but: int) -> None:
        """Delete all copies of other steps."""
        for copy in self.held():
            if copy.step != but:
                with contextlib.suppress(FileNotFoundError):  # another rank of this node deleted it
                    self.path(copy).unlink()


def _parse_checksum(name: re.Match[str]) -> Checksum:
    return Checksum(name[6] or SHA256, name[7])


def choose_copy_distance(racks: Sequence[str], per_node: int) -> int:
    """How many ranks further on a copy goes: to another node, and for as many ranks as possible to another rack.

    Args:
        racks: of each rank, by rank; empty where it is not known.
        per_node: ranks on each node; there are ranks on at least two nodes.

    Returns:
        A multiple of `per_node`; the smallest of those that are equally good, which is the next node if no rack is known.
    """
    of_nodes = racks[::per_node]
    best, fewest = 1, len(of_nodes) + 1
    for distance in range(1, len(of_nodes)):
        others = (*of_nodes[distance:], *of_nodes[:distance])
        same = sum(bool(rack) and rack == other for rack, other in zip(of_nodes, others, strict=True))
        if same < fewest:
            best, fewest = distance, same
        if not same:
            break
    return best * per_node


class CopySource(NamedTuple):
    """The rank from whose node a copy is taken."""

    holder: int
    copy: StateCopy


def find_complete_step(held: Sequence[Iterable[StateCopy]], world: int) -> list[CopySource]:
    """Find the newest step of which every rank's copy is held somewhere.

    Args:
        held: what each rank's node holds, by rank.
        world: the number of ranks; copies of jobs of another size do not count.

    Returns:
        A source for each rank, its own node if that holds it; empty if no step is complete.
    """
    holders: dict[tuple[int, str], dict[int, list[CopySource]]] = {}
    for holder, copies in enumerate(held):
        for copy in copies:
            if copy.world == world:
                holders.setdefault((copy.step, copy.save), {}).setdefault(copy.rank, []).append(
                    CopySource(holder, copy)
                )
    for save in sorted(holders, reverse=True):
        if all(rank in holders[save] for rank in range(world)):
            return [min(holders[save][rank], key=lambda s: (s.holder != s.copy.rank, s)) for rank in range(world)]
    return []


def find_newest_step(held: Sequence[Iterable[StateCopy]], world: int) -> list[CopySource]:
    """The newest step that all ranks can go on from: one that is whole, or of which a single replica is held somewhere.

    Args:
        held: what each rank's node holds, by rank.
        world: the number of ranks.

    Returns:
        A source for each rank, by rank, its own node where that holds one; empty where there is no such step.
    """
    whole = find_complete_step(held, world)
    replicas = [CopySource(holder, copy) for holder, copies in enumerate(held) for copy in copies if copy.replica]
    newest = max(((each.copy.step, each.copy.save) for each in replicas), default=(-1, ""))
    if whole and whole[0].copy.step >= newest[0]:
        return whole
    sources = sorted(each for each in replicas if (each.copy.step, each.copy.save) == newest)
    at_home = {each.holder: each for each in reversed(sources)}
    return [at_home.get(rank) or sources[rank % len(sources)] for rank in range(world)] if sources else []

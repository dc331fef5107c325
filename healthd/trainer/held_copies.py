"""Copies of ranks' states in a memory file system: which there are, and from which of them a whole step can be put together.

    DIRECTORY/step-000000042-of-8-rank-3-save-1f09ac3e-SHA256.copy
    DIRECTORY/step-000000042-of-8-rank-3-replica-save-1f09ac3e-SHA256.copy

The name carries the checksum of the content, so a copy needs nothing beside it to be trusted. The directory is one node's
and one job's; the ranks of a node may share it. No framework in here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from healthd.trainer.checkpoint_files import CheckpointError, FileEntry, measure

_log = logging.getLogger("healthd.trainer")
_NAME = re.compile(r"step-(\d{9,})-of-(\d+)-rank-(\d+)(-replica)?-save-([0-9a-f]{8})-([0-9a-f]{64})\.copy")


class HeldCopy(NamedTuple):
    """The state of one rank after one step, of a job of `world` ranks.

    `save` is the same for all ranks, and another each time a step is saved: copies of one step that was trained twice, by
    different generations of a process group, are never mixed. `replica`: every rank held the same state then, so that this
    copy alone is enough for a job of any number of ranks.
    """

    step: int
    world: int
    rank: int
    save: str
    sha256: str
    replica: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        rank = f"{self.rank}-replica" if self.replica else str(self.rank)
        return f"step-{self.step:09d}-of-{self.world}-rank-{rank}-save-{self.save}-{self.sha256}.copy"


def prepare_private(directory: Path) -> None:
    """Make a directory that only this user can write to; what lies below it then is this user's, too.

    Raises:
        CheckpointError: it is there, and another user's, or others may write to it.
        OSError: the file system says no.
    """
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise CheckpointError(
            f"{directory}: is not a directory of this user alone, and so not used for copies of the state in memory:"
            " delete it, or start without --swap"
        )


class HeldCopies:
    """The copies that one node holds."""

    def __init__(self, directory: Path) -> None:
        """Args: `directory`: on tmpfs; is made when first needed."""
        self.directory = directory

    def held(self) -> list[HeldCopy]:
        """Those whose writing was finished; none in a directory that others may write to: what is in a copy is unpickled."""
        try:
            if foreign := self._foreign():
                _log.warning("copies in memory not used: %s", foreign)
                return []
            names = sorted(path.name for path in self.directory.iterdir())
        except FileNotFoundError:
            return []
        found = [_NAME.fullmatch(name) for name in names]
        return [
            HeldCopy(int(each[1]), int(each[2]), int(each[3]), each[5], each[6], bool(each[4]))
            for each in found
            if each
        ]

    def path(self, copy: HeldCopy) -> Path:
        """Where its file is."""
        return self.directory / copy.name

    def aside(self, what: str, rank: int) -> Path:
        """The name under which a rank writes a copy; what a crash left there is written over.

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
            return f"{self.directory}: no directory"
        ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        return "" if ours else f"{self.directory}: belongs to another user, or others may write to it"

    def finish(self, aside: Path, copy: HeldCopy) -> None:
        """What was written aside is this copy, whole."""
        aside.rename(self.path(copy))

    def check(self, copy: HeldCopy) -> FileEntry:
        """Read a copy through.

        Raises:
            CheckpointError: it is gone or not what its name says.
        """
        try:
            entry = measure(self.path(copy))
        except OSError as error:
            raise CheckpointError(f"{self.path(copy)}: {error.strerror}") from error
        if entry.sha256 != copy.sha256:
            raise CheckpointError(f"{self.path(copy)}: its content is not what its name says")
        return entry

    def forget(self, *, but: int) -> None:
        """Delete all copies of other steps."""
        for copy in self.held():
            if copy.step != but:
                with contextlib.suppress(FileNotFoundError):  # a rank beside this one was quicker
                    self.path(copy).unlink()


class Source(NamedTuple):
    """From which rank's node a copy is taken."""

    holder: int
    copy: HeldCopy


def whole_step(held: Sequence[Iterable[HeldCopy]], world: int) -> list[Source]:
    """The newest step of which every rank's copy is held somewhere.

    Args:
        held: what each rank's node holds, by rank.
        world: the number of ranks; copies of jobs of another size do not count.

    Returns:
        A source for each rank, its own node where that holds it; empty where no step is whole.
    """
    holders: dict[tuple[int, str], dict[int, list[Source]]] = {}
    for holder, copies in enumerate(held):
        for copy in copies:
            if copy.world == world:
                holders.setdefault((copy.step, copy.save), {}).setdefault(copy.rank, []).append(Source(holder, copy))
    for save in sorted(holders, reverse=True):
        if all(rank in holders[save] for rank in range(world)):
            return [min(holders[save][rank], key=lambda s: (s.holder != s.copy.rank, s)) for rank in range(world)]
    return []


def newest_step(held: Sequence[Iterable[HeldCopy]], world: int) -> list[Source]:
    """The newest step that all ranks can go on from: one that is whole, or of which a single replica is held somewhere.

    Args:
        held: what each rank's node holds, by rank.
        world: the number of ranks.

    Returns:
        A source for each rank, by rank, its own node where that holds one; empty where there is no such step.
    """
    whole = whole_step(held, world)
    replicas = [Source(holder, copy) for holder, copies in enumerate(held) for copy in copies if copy.replica]
    newest = max(((each.copy.step, each.copy.save) for each in replicas), default=(-1, ""))
    if whole and whole[0].copy.step >= newest[0]:
        return whole
    sources = sorted(each for each in replicas if (each.copy.step, each.copy.save) == newest)
    at_home = {each.holder: each for each in reversed(sources)}
    return [at_home.get(rank) or sources[rank % len(sources)] for rank in range(world)] if sources else []

"""Atomic checkpoints: written to a temporary directory, synced, listed in a manifest with checksums, then renamed.

    ROOT/step-000000042/             complete, after the rename
        manifest.json                step, world, every file with its size and checksum
        ...                          the files of all ranks
    ROOT/.step-000000042.tmp/        being written, or left behind by a crash
    ROOT/.step-000000042.old/        briefly, while a run that went back saves a step again
    ROOT/.step-000000042.gone/       being deleted
    ROOT/going-back.json             the first excluded step, until the relaunched job has loaded
    ROOT/abandoned-step-000000042/   abandoned by a run that went back; never used, nor deleted while complete

Uses no framework. Writing the files and synchronising the ranks is the adapters' part.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from healthd.trainer.checkpoint_storage.abandoned_checkpoints import (
    list_incomplete_checkpoints,
    mark_too_new,
    read_mark,
    remove_mark,
    set_aside,
)
from healthd.trainer.checkpoint_storage.checkpoint_files import (
    CheckpointError,
    FileEntry,
    Manifest,
    read_manifest,
    require_listed_files,
    verify_checkpoint,
    write_manifest,
)
from vocabulary.atomic_file import sync_directory

_COMPLETE = re.compile(r"step-(\d{9,})")
_LEFTOVER = re.compile(r"\.(step-\d{9,})\.(tmp|old|gone)")

_log = logging.getLogger("healthd.trainer")


class Checkpoint(NamedTuple):
    """A complete, verified checkpoint."""

    path: Path
    manifest: Manifest


class SkippedCheckpoint(NamedTuple):
    """A complete checkpoint that could not be loaded."""

    path: Path
    why: str


class CompletedSave(NamedTuple):
    """One complete save, as this rank saw it."""

    step: int
    path: str
    stall_seconds: float  # time that training waited
    seconds: float  # from the call until it was complete
    bytes_written: int  # by this rank
    bytes_linked: int  # by this rank, instead of written


class Checkpoints:
    """The checkpoints in one directory, which all ranks see and no other job writes to."""

    def __init__(self, root: str | os.PathLike[str], keep: int = 3, keep_every: int = 0) -> None:
        """Set the directory and the retention.

        Args:
            root: is made when first needed.
            keep: complete checkpoints to retain, the newest; at least 1.
            keep_every: beyond those, retain each one after a multiple of this many finished steps; 0: none.
        """
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must stay")
        if keep_every < 0:
            raise ValueError(f"keep_every={keep_every}: a number of steps, or 0")
        self.root = Path(root).absolute()
        self.keep = keep
        self.keep_every = keep_every
        self._passed_over: list[Path] = []

    def open(self, step: int, *, sweeping: bool = False) -> Path:
        """Return an empty directory for step `step`, removing leftovers of crashes. One rank calls this.

        Args:
            step: the step whose result it will hold.
            sweeping: `sweep` runs at the same time: what it deletes is left to it.

        Raises:
            OSError: a file operation failed.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        self._put_back()
        self._set_aside_passed_over()
        for entry in self.root.iterdir():
            match = _LEFTOVER.fullmatch(entry.name)
            if match and (match[2] == "tmp" or not sweeping):
                shutil.rmtree(entry)
        aside = self.aside(step)
        aside.mkdir()
        return aside

    def aside(self, step: int) -> Path:
        """Return where the files of `step` are until it is complete."""
        return self.root / f".{_format_step_name(step)}.tmp"

    def complete(self, step: int, world: int, files: dict[str, FileEntry]) -> Path:
        """Turn the directory from `open` into a checkpoint. One rank calls this, once all files are on disk.

        Checkpoints beyond retention no longer count from now on; `sweep` deletes them.

        Raises:
            CheckpointError: a file is not listed, or a listed one is missing.
            OSError: a file operation failed; the previous checkpoint stays the latest.
        """
        aside = self.aside(step)
        require_listed_files(aside, set(files))
        write_manifest(aside, Manifest(step, world, files))
        sync_directory(aside)
        final, old = self.root / _format_step_name(step), self.root / f".{_format_step_name(step)}.old"
        if final.exists():  # a run went back and reached this step again
            final.rename(old)
        aside.rename(final)
        sync_directory(self.root)
        self._set_aside(step)
        self._retain()
        return final

    def sweep(self) -> None:
        """Delete what `complete` found to be no longer needed. One rank calls this; never raises."""
        try:
            for entry in self.root.iterdir():
                if entry.name.endswith((".old", ".gone")) and _LEFTOVER.fullmatch(entry.name):
                    shutil.rmtree(entry, ignore_errors=True)  # a failed deletion must not stop a training run
            for entry in list_incomplete_checkpoints(
                self.root, before=min(map(parse_checkpoint_step, self._complete_paths()), default=0)
            ):
                shutil.rmtree(entry, ignore_errors=True)
        except OSError as error:
            _log.warning("cannot list checkpoints to delete: %s", error)

    def discard(self, step: int) -> None:
        """Delete a failed save, as far as possible."""
        shutil.rmtree(self.aside(step), ignore_errors=True)

    def newest_first(self) -> list[Path]:
        """Set abandoned checkpoints aside; return the complete ones, unverified, newest first. One rank calls this.

        Raises:
            CheckpointError: the going-back mark cannot be read.
            OSError: a file operation failed.
        """
        self._put_back()
        before_step = read_mark(self.root)
        if before_step is not None:
            self._set_aside(before_step - 1)
        return self._complete_paths()[::-1]

    def go_back(self, before_step: int) -> None:
        """Exclude `before_step` and later from loading: the next `newest_first` sets them aside. One rank calls this.

        On disk when it returns. Also covers a save that completes later.

        Raises:
            CheckpointError: no complete checkpoint is older, so the job would start over.
            OSError: a file operation failed.
        """
        older = [path for path in self._complete_paths() if parse_checkpoint_step(path) < before_step]
        if not older:
            raise CheckpointError(f"{self.root}: holds no checkpoint before step {before_step}")
        mark_too_new(self.root, before_step)
        _log.warning("the next run resumes before step %d, with %s or an older one", before_step, older[-1].name)

    @property
    def going_back(self) -> bool:
        """Return whether a run has gone back and none has loaded since. Raises like `newest_first`."""
        return read_mark(self.root) is not None

    def gone_back(self) -> None:
        """Finish going back: from here on new checkpoints count. One rank calls this.

        Raises:
            OSError: a file operation failed.
        """
        remove_mark(self.root)

    def latest(self) -> Checkpoint | None:
        """Return the newest checkpoint that verifies; log each one skipped with the faulty file.

        Raises:
            CheckpointError: there are checkpoints, and none verifies.
            ChecksumUnavailableError: a checksum cannot be computed here.
        """
        passed_over: list[SkippedCheckpoint] = []
        for path in self.newest_first():
            try:
                manifest = verify_checkpoint(path)
            except CheckpointError as error:
                log_skipped_checkpoint(str(error))
                passed_over.append(SkippedCheckpoint(path, str(error)))
                continue
            self.fallen_back(passed_over, path)
            return Checkpoint(path, manifest)
        self.fallen_back(passed_over, None)
        return None

    def fallen_back(self, passed_over: list[SkippedCheckpoint], path: Path | None) -> None:
        """Record that the run continues from `path`, as these newer checkpoints could not be loaded.

        Files stay untouched, since only the read may have failed. The next `open` sets them aside: counted among the
        newest `keep`, they would push out the good one.

        Raises:
            CheckpointError: there is no `path` although there were checkpoints. Only a person may decide to start
            over.
        """
        if path is None and passed_over:
            raise CheckpointError(
                f"{self.root}: none of the {len(passed_over)} checkpoints can be loaded. The newest: {passed_over[0].why}. "
                "If the program or its configuration has changed, change it back; to train from the beginning, move the checkpoints away"
            )
        if path is not None and passed_over:
            newer = passed_over[0]
            _log.warning("falling back from %s to %s: %s", newer.path.name, path.name, newer.why)
        self._passed_over = [each.path for each in passed_over]

    def linkable(self) -> dict[FileEntry, Path]:
        """Return files of the newest checkpoint that a new one may share, by content.

        Of the `keep` newest, at most `keep` - 1 share a file: if it goes bad on disk, one checkpoint without it must
        remain. So with `keep` below 3 there are none.
        """
        newest = next(reversed(self._complete_paths()), None)
        if newest is None:
            return {}
        try:
            files = read_manifest(newest).files
            return {
                entry: newest / name
                for name, entry in files.items()
                if _count_file_links(newest / name, entry) < self.keep - 1
            }
        except (CheckpointError, OSError):
            return {}

    def explain(self, step: int, error: BaseException) -> str:
        """Return the message about a failed save."""
        text = f"step {step} was not saved, the previous checkpoint stays: {error}"
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            with contextlib.suppress(OSError):
                text += f" ({shutil.disk_usage(self.root).free / 1e6:.1f} MB are free)"
        return text

    def _put_back(self) -> None:
        """Restore a checkpoint's name: a crash between the two renames of `complete` leaves it under `.old`."""
        if not self.root.is_dir():
            return
        for entry in self.root.iterdir():
            match = _LEFTOVER.fullmatch(entry.name)
            if match and match[2] == "old" and not (self.root / match[1]).exists():
                entry.rename(self.root / match[1])

    def _complete_paths(self) -> list[Path]:
        try:
            found = [path for path in self.root.iterdir() if _COMPLETE.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        return sorted(found, key=parse_checkpoint_step)

    def _set_aside_passed_over(self) -> None:
        while self._passed_over:
            path = self._passed_over[-1]
            if path.exists():
                _log.warning("%s could not be loaded: now %s, delete it", path, set_aside(path).name)
            self._passed_over.pop()

    def _set_aside(self, step: int) -> None:
        """Set aside what is newer than the saved step: it was abandoned and must not be the latest."""
        for path in self._complete_paths():
            if parse_checkpoint_step(path) > step:
                name = set_aside(path).name
                _log.warning("%s belongs to a run that went back to step %d: now %s, delete it", path, step, name)

    def _retain(self) -> None:
        for path in self._complete_paths()[: -self.keep]:
            if self.keep_every and (parse_checkpoint_step(path) + 1) % self.keep_every == 0:
                continue
            doomed = path.with_name(f".{path.name}.gone")  # a crash half way must leave nothing that looks complete
            try:
                path.rename(doomed)
            except OSError:
                _log.warning("cannot delete %s, which is no longer needed", path)


def log_skipped_checkpoint(why: str) -> None:
    """Log one line about a checkpoint that cannot be loaded."""
    _log.warning("checkpoint not used: %s; trying the previous one", why)


def _format_step_name(step: int) -> str:
    return f"step-{step:09d}"


def parse_checkpoint_step(path: Path) -> int:
    """Return the step of a complete checkpoint."""
    return int(path.name.rpartition("-")[2])


def _count_file_links(file: Path, entry: FileEntry) -> int:
    """Return how many checkpoints share this file; one whose size differs from the manifest cannot be shared."""
    status = file.stat()
    if status.st_size != entry.bytes:
        raise CheckpointError(f"{file}: {status.st_size} bytes, the manifest says {entry.bytes}")
    return status.st_nlink

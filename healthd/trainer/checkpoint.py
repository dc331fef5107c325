"""Checkpoints that are whole or not there: written aside, synced, listed in a manifest with checksums, then renamed.

    ROOT/step-000000042/             complete, by the rename
        manifest.json                step, world, every file with its size and SHA-256
        ...                          the files of all ranks
    ROOT/.step-000000042.tmp/        being written, or left behind by a crash

No framework in here. Who writes the files and how the ranks wait for each other is an adapter's business.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
_COMPLETE = re.compile(r"step-(\d{9,})")
_LEFTOVER = re.compile(r"\.step-\d{9,}\.(tmp|old)")
_BLOCK_BYTES = 1 << 20

_log = logging.getLogger("healthd.trainer")


class CheckpointError(Exception):
    """A checkpoint that cannot be written or trusted; the text names the file."""


class FileEntry(NamedTuple):
    """What the manifest says of one file."""

    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """What a complete checkpoint holds."""

    step: int
    world: int
    files: dict[str, FileEntry]


class Checkpoint(NamedTuple):
    """A complete, verified checkpoint."""

    path: Path
    manifest: Manifest


class Checkpoints:
    """The checkpoints under one directory, which all ranks see."""

    def __init__(self, root: str | os.PathLike[str], keep: int = 3) -> None:
        """Args: `root`: is made when first needed; `keep`: complete checkpoints to retain, at least 1."""
        if keep < 1:
            raise ValueError(f"keep={keep}: at least one checkpoint must stay")
        self.root = Path(root).absolute()
        self.keep = keep

    def open(self, step: int) -> Path:
        """An empty directory to write step `step` into. One rank calls this; leftovers of earlier crashes go.

        Raises:
            OSError: the file system says no.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        for entry in self.root.iterdir():
            if _LEFTOVER.fullmatch(entry.name):
                shutil.rmtree(entry)
        aside = self.root / f".{_name(step)}.tmp"
        aside.mkdir()
        return aside

    def complete(self, step: int, world: int, files: dict[str, FileEntry]) -> Path:
        """Make the directory that `open` gave a checkpoint. One rank calls this, after every rank has sealed its files.

        Raises:
            CheckpointError: a file is not listed, or a listed one is not there.
            OSError: the file system says no; the checkpoint before stays the latest.
        """
        aside = self.root / f".{_name(step)}.tmp"
        _require_same(aside, set(files))
        document = {
            "version": MANIFEST_VERSION,
            "step": step,
            "world": world,
            "files": {name: files[name]._asdict() for name in sorted(files)},
        }
        with (aside / MANIFEST).open("w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _sync_directory(aside)
        final, old = self.root / _name(step), self.root / f".{_name(step)}.old"
        if final.exists():  # a run that went back and came to this step again
            final.rename(old)
        aside.rename(final)
        _sync_directory(self.root)
        self._retain()
        return final

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that verifies; each one passed over is said, with the file that is wrong."""
        damaged = ""
        for path in reversed(self._complete_paths()):
            try:
                manifest = verify(path)
            except CheckpointError as error:
                damaged = damaged or path.name
                _log.warning("checkpoint not used: %s; looking for the one before", error)
                continue
            if damaged:
                _log.warning("falling back from %s to %s", damaged, path.name)
            return Checkpoint(path, manifest)
        return None

    def _complete_paths(self) -> list[Path]:
        try:
            found = [path for path in self.root.iterdir() if _COMPLETE.fullmatch(path.name)]
        except FileNotFoundError:
            return []
        return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))

    def _retain(self) -> None:
        for path in self._complete_paths()[: -self.keep]:
            shutil.rmtree(path, ignore_errors=True)  # what cannot be deleted must not stop a training run
        for entry in self.root.iterdir():
            if entry.name.endswith(".old") and _LEFTOVER.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)


def seal(directory: Path, names: list[str]) -> dict[str, FileEntry]:
    """Put a rank's own files of an open checkpoint on disk for good, and measure them.

    Raises:
        OSError: a file is missing, or the file system says no.
    """
    entries = {}
    for name in names:
        with (directory / name).open("rb") as file:
            os.fsync(file.fileno())
            entries[name] = _measure(directory / name)
    _sync_directory(directory)
    return entries


def verify(path: Path) -> Manifest:
    """Check every byte of a checkpoint against its manifest.

    Raises:
        CheckpointError: names the file and what is wrong with it.
    """
    manifest = read_manifest(path)
    _require_same(path, set(manifest.files) | {MANIFEST})
    for name, entry in manifest.files.items():
        file = path / name
        size = file.stat().st_size
        if size != entry.bytes:
            raise CheckpointError(f"{file}: {size} bytes, the manifest says {entry.bytes}")
        if _measure(file) != entry:
            raise CheckpointError(f"{file}: its SHA-256 is not the manifest's")
    return manifest


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint.

    Raises:
        CheckpointError: missing, unreadable, of another version, or with a wrong field, which it names.
    """
    file = path / MANIFEST
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != MANIFEST_VERSION:
        raise CheckpointError(f"{file}: version: not {MANIFEST_VERSION}, which this program reads")
    try:
        files = {
            name: FileEntry(int(entry["bytes"]), str(entry["sha256"])) for name, entry in document["files"].items()
        }
        return Manifest(int(document["step"]), int(document["world"]), files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{file}: field missing or wrong: {error!r}") from error


def _name(step: int) -> str:
    return f"step-{step:09d}"


def _measure(path: Path) -> FileEntry:
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            size += len(block)
    return FileEntry(size, digest.hexdigest())


def _require_same(directory: Path, listed: set[str]) -> None:
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    if missing := sorted(listed - present):
        raise CheckpointError(f"{directory / missing[0]}: missing")
    if unlisted := sorted(present - listed):
        raise CheckpointError(f"{directory / unlisted[0]}: not in the manifest")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""The files of one checkpoint: hashed while they are written, listed in a manifest, verified before use.

The manifest is written last, so it also marks that everything before it is on disk.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from healthd.trainer.checkpoint_storage.background_task import ParallelCall
from healthd.trainer.checkpoint_storage.checksums import (
    ALGORITHMS,
    Checksum,
    choose_algorithm,
    compute_file_checksum,
    create_digest,
)

MANIFEST = "manifest.json"
MANIFEST_VERSION = 1
_SLICE_BYTES = 64 << 20  # of one write, so that a big tensor reaches the disk while the rest is written
_SYNC_AHEAD_BYTES = 32 << 20
_NAMED_STEP = re.compile(r"\bstep-(\d+)\b")


class CheckpointError(Exception):
    """A checkpoint that cannot be written or trusted; the text names the file."""


class FileEntry(NamedTuple):
    """The manifest's entry for one file."""

    bytes: int
    checksum: Checksum


class Manifest(NamedTuple):
    """The content of a complete checkpoint."""

    step: int
    world: int
    files: dict[str, FileEntry]

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(entry.bytes for entry in self.files.values())


class HashedStream:
    """A file being written. Errors are kept until the end, so that no library in between can swallow them."""

    def __init__(self, file: BinaryIO, algorithm: str, *, sync_ahead: bool = False) -> None:
        """Args: `algorithm`: of the checksum; `sync_ahead`: begin to sync while more is written; then call `end_sync_ahead`."""
        self._file = file
        self._algorithm = algorithm
        self._digest = create_digest(algorithm)
        self._size = 0
        self._syncs_ahead = sync_ahead
        self._unsynced = 0
        self._syncing: ParallelCall | None = None
        self.error: OSError | None = None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Append; ignored after a failure."""
        view = memoryview(data)
        size = view.nbytes
        try:
            for start in range(0, size if self.error is None else 0, _SLICE_BYTES):
                part = view.cast("B")[start : start + _SLICE_BYTES]
                self._file.write(part)
                self._digest.update(part)
                if self._syncs_ahead:
                    self._sync_ahead(part.nbytes)
        except OSError as error:
            self.error = error
        self._size += size
        return size

    def tell(self) -> int:
        """Return the bytes written so far."""
        return self._size

    def flush(self) -> None:
        """Do nothing: nothing is read before the end."""

    def close(self) -> None:
        """Do nothing: the `FileWriter` closes."""

    def end_sync_ahead(self) -> None:
        """Wait for a sync under way: the kernel reports a failed write once, perhaps to it and not to `finish`."""
        syncing, self._syncing = self._syncing, None
        try:
            if syncing is not None:
                syncing.wait()
        except OSError as error:
            self.error = self.error or error

    def finish(self) -> None:
        """Sync to disk."""
        try:
            self._file.flush()
            if not isinstance(self._file, io.BytesIO):
                os.fsync(self._file.fileno())
        except OSError as error:
            self.error = error

    @property
    def entry(self) -> FileEntry:
        """Return the entry of what was written."""
        return FileEntry(self._size, Checksum(self._algorithm, self._digest.hexdigest()))

    def _sync_ahead(self, size: int) -> None:
        self._unsynced += size
        if self._unsynced < _SYNC_AHEAD_BYTES or (self._syncing is not None and not self._syncing.done):
            return
        self.end_sync_ahead()
        self._file.flush()
        self._unsynced = 0
        descriptor = self._file.fileno()
        with contextlib.suppress(RuntimeError):  # no thread can start: `finish` syncs everything
            self._syncing = ParallelCall(lambda: os.fdatasync(descriptor), "healthd-checkpoint-sync")


class FileWriter:
    """Writes files into an open checkpoint, synced to disk, and records each one's size and checksum.

    Given the previous checkpoint's files, a file with existing content becomes a hard link. To know that before
    writing, it then holds one file at a time in memory.
    """

    def __init__(
        self, directory: Path, known: Mapping[FileEntry, Path] | None = None, *, algorithm: str | None = None
    ) -> None:
        """Set where the files go.

        Args:
            directory: of the open checkpoint.
            known: files on the same file system that may be linked, by content; None writes each immediately.
            algorithm: of the checksums; None: the fastest that works here.
        """
        self.directory = directory
        self._algorithm = algorithm or choose_algorithm()
        self.entries: dict[str, FileEntry] = {}
        self.bytes_linked = 0
        self._known = known

    @property
    def bytes_written(self) -> int:
        """Bytes written to disk and not linked."""
        return sum(entry.bytes for entry in self.entries.values()) - self.bytes_linked

    @contextlib.contextmanager
    def create(self, name: str) -> Iterator[HashedStream]:
        """Yield a stream for the new file `name`; durable when the block ends.

        Raises:
            OSError: a file operation failed, now or in any write of the block.
        """
        path = self.directory / name
        target: BinaryIO = path.open("wb") if self._known is None else io.BytesIO()
        with target:
            stream = HashedStream(target, self._algorithm, sync_ahead=self._known is None)
            try:
                yield stream
            except Exception:
                if stream.error is None:
                    raise
            finally:
                stream.end_sync_ahead()
            if stream.error is None:
                stream.finish()
            if stream.error is not None:
                raise OSError(stream.error.errno, stream.error.strerror, str(path)) from stream.error
            if isinstance(target, io.BytesIO):
                self._link_or_write(path, stream.entry, target.getbuffer())
        self.entries[name] = stream.entry

    def renamed(self, old: str, new: str) -> None:
        """Record that the file `old` is named `new` from now on."""
        self.entries[new] = self.entries.pop(old)

    def _link_or_write(self, path: Path, entry: FileEntry, content: memoryview) -> None:
        source = (self._known or {}).get(entry)
        if source is not None:
            try:
                os.link(source, path)
            except OSError:  # removed meanwhile, or a file system without links: then write
                source = None
            else:
                self.bytes_linked += entry.bytes
        if source is None:
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())


def verify_checkpoint(path: Path, *, part: int = 0, parts: int = 1) -> Manifest:
    """Verify a checkpoint against its manifest: every name, and every byte of the `part`-th of `parts` shares.

    Args:
        path: the checkpoint.
        part: the share of the files to read, counted from 0.
        parts: number of shares, the biggest files distributed first.

    Raises:
        CheckpointError: names the file and the problem.
        ChecksumUnavailableError: a checksum cannot be computed here.
    """
    manifest = read_manifest(path)
    by_size = sorted(manifest.files, key=lambda name: (-manifest.files[name].bytes, name))
    with _naming_file(path):
        require_listed_files(path, set(manifest.files) | {MANIFEST})
        for name in by_size[part::parts]:
            _check_file_entry(path / name, manifest.files[name])
    return manifest


def check_listing(path: Path, whole: str) -> Manifest:
    """Verify of a checkpoint the names and sizes of all files, and every byte of the file `whole`, if it has one.

    Raises: as `verify_checkpoint`.
    """
    manifest = read_manifest(path)
    with _naming_file(path):
        require_listed_files(path, set(manifest.files) | {MANIFEST})
        for name, entry in manifest.files.items():
            _check_size(path / name, entry)
        if whole in manifest.files:
            _check_file_entry(path / whole, manifest.files[whole])
    return manifest


@contextlib.contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{error.filename or path}: {error.strerror}") from error


def _check_size(file: Path, entry: FileEntry) -> None:
    size = file.stat().st_size
    if size != entry.bytes:
        raise CheckpointError(f"{file}: {size} bytes, the manifest says {entry.bytes}")


def _check_file_entry(file: Path, entry: FileEntry) -> None:
    _check_size(file, entry)
    if measure_file(file, entry.checksum.algorithm) != entry:
        raise CheckpointError(f"{file}: its {entry.checksum.algorithm} checksum does not match the manifest")


def read_manifest(path: Path) -> Manifest:
    """Return the manifest of a checkpoint.

    Raises:
        CheckpointError: missing, unreadable, of another version, or with an invalid field, which it names.
    """
    file = path / MANIFEST
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != MANIFEST_VERSION:
        raise CheckpointError(f"{file}: version: not {MANIFEST_VERSION}, which this program reads")
    try:
        files = {name: _parse_entry(entry) for name, entry in document["files"].items()}
        manifest = Manifest(int(document["step"]), int(document["world"]), files)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{file}: field missing or invalid: {error!r}") from error
    if (match := _NAMED_STEP.search(path.name)) and int(match[1]) != manifest.step:
        raise CheckpointError(f"{file}: step: {manifest.step}, but the directory is named {path.name}")
    return manifest


def _parse_entry(entry: dict[str, Any]) -> FileEntry:
    """Its checksum's key names the algorithm, so that programs of before BLAKE3 see a missing field, and delete nothing."""
    (algorithm,) = [key for key in ALGORITHMS if key in entry]
    return FileEntry(int(entry["bytes"]), Checksum(algorithm, str(entry[algorithm])))


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of an open checkpoint, after all files.

    Raises:
        OSError: a file operation failed.
    """
    document = {
        "version": MANIFEST_VERSION,
        "step": manifest.step,
        "world": manifest.world,
        "files": {
            name: {"bytes": entry.bytes, entry.checksum.algorithm: entry.checksum.digest}
            for name, entry in sorted(manifest.files.items())
        },
    }
    with (directory / MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def measure_file(path: Path, algorithm: str) -> FileEntry:
    """Return a file's size and checksum.

    Raises:
        ChecksumUnavailableError: it cannot be computed here.
        OSError: it cannot be read.
    """
    return FileEntry(*compute_file_checksum(path, algorithm))


def require_listed_files(directory: Path, listed: set[str]) -> None:
    """Raise CheckpointError if the files under `directory` are not exactly those `listed`."""
    present = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
    if missing := sorted(listed - present):
        raise CheckpointError(f"{directory / missing[0]}: missing")
    if unlisted := sorted(present - listed):
        raise CheckpointError(f"{directory / unlisted[0]}: not in the manifest")

"""Checksums of files: BLAKE3 where its package is installed, else SHA-256. A checksum names its algorithm.

Either detects any accidental change; neither protects against tampering, as whoever changes a file can list another checksum.
BLAKE3 is several times faster on one core. Nothing outside the standard library is imported before the first checksum.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

BLAKE3, SHA256 = "blake3", "sha256"
ALGORITHMS = (BLAKE3, SHA256)  # the fastest first
PARALLEL_BYTES = 1 << 20  # hashing less than this costs less than starting a thread
_READ_BYTES = 4 << 20


class ChecksumUnavailableError(Exception):
    """The package of a checksum's algorithm is not installed, which says nothing about the file."""


class Checksum(NamedTuple):
    """The checksum of one file."""

    algorithm: str
    digest: str  # in hexadecimal


class Digest(Protocol):
    """A checksum being computed."""

    def update(self, data: memoryview, /) -> object:
        """Append data."""

    def hexdigest(self) -> str:
        """Return the checksum so far."""


class ParallelCall:
    """A call in a thread of its own, from the beginning. Works during interpreter exit too, where executors refuse tasks."""

    def __init__(self, call: Callable[[], object], name: str) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for its end; raise what it raised."""
        try:
            self._thread.join()
        except BaseException:  # an interrupt: the call may still use its caller's memory
            self._thread.join()
            raise
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._error = error


def choose_algorithm() -> str:
    """Return the fastest algorithm that works here."""
    try:
        create_digest(BLAKE3)
    except ChecksumUnavailableError:
        return SHA256
    return BLAKE3


def choose_common_algorithm(of_each: list[str]) -> str:
    """Return an algorithm that works on every rank, given what each has chosen."""
    return max(of_each, key=ALGORITHMS.index)


def create_digest(algorithm: str) -> Digest:
    """Return an empty digest.

    Args:
        algorithm: one of `ALGORITHMS`.

    Raises:
        ChecksumUnavailableError: its package is not installed.
    """
    if algorithm == SHA256:
        return hashlib.sha256()
    try:
        from blake3 import blake3  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ChecksumUnavailableError(
            f"checksums are {algorithm}, whose package is not installed here: pip install {algorithm}"
        ) from error
    return blake3()


def compute_file_checksum(path: Path, algorithm: str) -> tuple[int, Checksum]:
    """Return a file's size and checksum, reading a block while hashing the one before.

    Raises:
        ChecksumUnavailableError: as `create_digest`.
        OSError: it cannot be read.
    """
    digest, size = create_digest(algorithm), 0
    ready, spare = bytearray(_READ_BYTES), bytearray(_READ_BYTES)
    hashing: ParallelCall | None = None
    with path.open("rb", buffering=0) as file:
        try:
            while count := file.readinto(ready):
                if hashing is not None:
                    hashing.wait()
                size += count
                block = memoryview(ready)[:count]
                hashing = _hash_beside(digest, block)
                ready, spare = spare, ready
        finally:
            if hashing is not None:
                hashing.wait()
    return size, Checksum(algorithm, digest.hexdigest())


def hash_and_write(digest: Digest, write: Callable[[memoryview], object], data: memoryview) -> None:
    """Append the same data to a digest and to a file, side by side where it is big. Both have ended when it returns.

    Raises:
        OSError: `write` failed; the digest is of no use then.
    """
    hashing = _hash_beside(digest, data)
    try:
        write(data)
    finally:
        if hashing is not None:
            hashing.wait()


def _hash_beside(digest: Digest, data: memoryview) -> ParallelCall | None:
    if data.nbytes < PARALLEL_BYTES:
        digest.update(data)
        return None
    try:
        return ParallelCall(lambda: digest.update(data), "healthd-checksum")
    except RuntimeError:  # no thread can start: a limit of processes, or the interpreter has ended
        digest.update(data)
        return None

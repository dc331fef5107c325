"""Checksums of files: BLAKE3 where its package is installed, else SHA-256. A checksum names its algorithm.

Either detects any accidental change; neither protects against tampering, as whoever changes a file can list another checksum.
BLAKE3 is several times faster on one core. Nothing outside the standard library is imported before the first checksum.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple, Protocol

BLAKE3, SHA256 = "blake3", "sha256"
ALGORITHMS = (BLAKE3, SHA256)  # the fastest first
_READ_BYTES = 1 << 20  # stays in the processor's cache until it is hashed


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
    """Return a file's size and checksum.

    Raises:
        ChecksumUnavailableError: as `create_digest`.
        OSError: it cannot be read.
    """
    digest, size, block = create_digest(algorithm), 0, bytearray(_READ_BYTES)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(memoryview(block)[:count])
            size += count
    return size, Checksum(algorithm, digest.hexdigest())

"""A rank's state as one file, and such files on their way to other ranks, in chunks over the ranks' own channel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from healthd.trainer.adapters.pytorch_file_writer import omit_crc32
from healthd.trainer.adapters.pytorch_host_copy import fill_leaf, iterate_leaves
from healthd.trainer.adapters.pytorch_rank_channel import RankChannel
from healthd.trainer.checkpoint_storage.checkpoint_files import FileEntry, HashedStream

CHUNK_BYTES = 1 << 24


def write_state(tree: dict[str, Any], path: Path, algorithm: str) -> FileEntry:
    """Write this rank's part of a state tree, with a checksum of this algorithm.

    Raises:
        OSError: the file system says no.
    """
    with path.open("wb") as file, omit_crc32():
        stream = HashedStream(file, algorithm)
        torch.save(dict(iterate_leaves(tree)), stream)
        if stream.error is not None:
            raise stream.error
    return stream.entry


def read_state(path: Path) -> dict[tuple[Any, ...], Any]:
    """What `write_state` wrote: each leaf's path in the tree, and its value."""
    # this user's own copy; a module's extra state may be any object
    saved: dict[tuple[Any, ...], Any] = torch.load(path, weights_only=False)
    return saved


def fill_state(tree: dict[str, Any], saved: dict[tuple[Any, ...], Any]) -> None:
    """Fill a state tree from what `read_state` read, its tensors in place.

    Raises:
        KeyError: a leaf was not saved, or a saved one is not here.
        ValueError: a tensor of another shape.
    """
    if differing := dict(iterate_leaves(tree)).keys() ^ saved.keys():
        raise KeyError(".".join(map(str, min(differing, key=str))))
    for keys, value in saved.items():
        fill_leaf(tree, keys, value)


def exchange_files(
    ranks: RankChannel, distance: int, paths: tuple[Path, Path], sizes: list[int]
) -> FileEntry | OSError:
    """Around the ring: every rank's file to the rank `distance` further on.

    Args:
        ranks: all of them take part.
        distance: in ranks.
        paths: this rank's file, and where the one that comes goes.
        sizes: of every rank's file, bytes, by rank.

    Returns:
        What came, or why it could not be written: the exchange itself continues for the other ranks.

    Raises:
        RankUnreachableError: a rank is lost, has given up, or does not answer.
    """
    after, before = (ranks.rank + distance) % ranks.world, (ranks.rank - distance) % ranks.world
    with paths[0].open("rb") as source, paths[1].open("wb") as target:
        stream = HashedStream(target, ranks.algorithm)
        for outgoing, incoming in itertools.zip_longest(
            _split_into_chunks(sizes[ranks.rank]), _split_into_chunks(sizes[before])
        ):
            chunk = torch.empty(incoming or 0, dtype=torch.uint8)
            leaving = _read_chunk(source, outgoing) if outgoing else None
            with ranks.exchanging():
                coming = dist.irecv(chunk, before, group=ranks.group) if incoming else None
                if leaving is not None:
                    dist.isend(leaving, after, group=ranks.group).wait()
                if coming is not None:
                    coming.wait()
            stream.write(chunk.numpy().data)
        stream.finish()
    return stream.error or stream.entry


def send_file(ranks: RankChannel, path: Path, size: int, target: int) -> None:
    """A file of `size` bytes to one rank, which calls `receive_file`. Raises RankUnreachableError."""
    with path.open("rb") as file:
        for length in _split_into_chunks(size):
            chunk = _read_chunk(file, length)
            with ranks.exchanging():
                dist.send(chunk, target, group=ranks.group)


def receive_file(ranks: RankChannel, path: Path, size: int, source: int, algorithm: str) -> FileEntry | OSError:
    """What `send_file` sends, with a checksum of this algorithm; an error of the file system is returned after all of it has come. Raises RankUnreachableError."""
    with path.open("wb") as file:
        stream = HashedStream(file, algorithm)
        for length in _split_into_chunks(size):
            chunk = torch.empty(length, dtype=torch.uint8)
            with ranks.exchanging():
                dist.recv(chunk, source, group=ranks.group)
            stream.write(chunk.numpy().data)
        stream.finish()
    return stream.error or stream.entry


def _split_into_chunks(size: int) -> Iterator[int]:
    return (min(CHUNK_BYTES, size - start) for start in range(0, size, CHUNK_BYTES))


def _read_chunk(file: BinaryIO, length: int) -> torch.Tensor:
    return torch.frombuffer(bytearray(file.read(length)), dtype=torch.uint8)

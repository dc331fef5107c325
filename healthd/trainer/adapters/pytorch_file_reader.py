"""torch.distributed.checkpoint's file reader, without `torch.load` and its copies where a tensor lies as `torch.save` puts it.

It verifies nothing: `TrainingCheckpoints` verifies the files at the same time, and uses nothing before that has succeeded.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import io
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType

from healthd.trainer.adapters.pytorch_file_writer import omit_crc32

METADATA = ".metadata"  # DCP's file of what lies where, a pickle
_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_MARK = b"\xa5"
_MARK_BYTES_MIN, _MARK_BYTES = 4, 64
_HEAD_BYTES_MAX = 4096
_PLAIN_BYTES_MAX = 256 << 20  # a larger tensor takes torch's way: making its head takes as much memory
_READ_BYTES_MAX = 1 << 30  # of one call; the kernel refuses more than 2 GiB


class PlainReader(FileSystemReader):  # type: ignore[misc]  # torch is untyped here
    """Reads tensors straight into the state where they are contiguous; leaves all others to `FileSystemReader`."""

    _metadata: Any = None

    def set_up_storage_reader(self, metadata: Any, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:  # noqa: FBT001 - DCP's signature
        """As DCP's."""
        super().set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)
        self._metadata = metadata

    def read_data(self, plan: Any, planner: Any) -> Any:
        """As DCP's."""
        files: dict[str, list[Any]] = {}
        for item in plan.items:
            files.setdefault(self.storage_data[item.storage_index].relative_path, []).append(item)
        others: list[Any] = []
        for name, items in files.items():
            with _opened(Path(self.path, name)) as descriptor:
                others += [item for item in items if not self._read_plain(descriptor, item, planner)]
        return super().read_data(dataclasses.replace(plan, items=others), planner)

    def _read_plain(self, descriptor: int, item: Any, planner: Any) -> bool:
        """Read a tensor that lies in its file as `torch.save` puts a contiguous one; False: it is none, nothing was read."""
        place = self.storage_data[item.storage_index]
        saved = self._metadata.state_dict_metadata.get(item.storage_index.fqn)
        if item.type is LoadItemType.BYTE_IO or getattr(place, "transform_descriptors", None):
            return False
        chunk = _find_chunk(saved, item.storage_index.offset)
        if chunk is None:
            return False
        head = _saved_head(saved.properties.dtype, tuple(chunk.sizes))
        if not head or os.pread(descriptor, len(head), place.offset) != head:
            return False
        target = planner.resolve_tensor(item).detach()
        if target.size() != torch.Size(item.lengths):
            raise AssertionError(f"req {item.storage_index} mismatch sizes {target.size()} vs {item.lengths}")
        whole = tuple(item.lengths) == tuple(chunk.sizes)
        direct = whole and target.device.type == "cpu" and target.dtype == saved.properties.dtype
        if direct and target.is_contiguous():
            _read_into(descriptor, place.offset + len(head), target)
        else:
            read = torch.empty(tuple(chunk.sizes), dtype=saved.properties.dtype)
            _read_into(descriptor, place.offset + len(head), read)
            for dimension, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                read = read.narrow(dimension, start, length)
            target.copy_(read)
        planner.commit_tensor(item, target)
        return True


class LateUnpickling(DefaultLoadPlanner):  # type: ignore[misc]  # torch is untyped here
    """Keeps what is not a tensor as bytes until `unpickle`, so that its file can be verified before."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[tuple[Any, io.BytesIO]] = []

    def load_bytes(self, read_item: Any, value: io.BytesIO) -> None:
        """Called by DCP for each."""
        self._kept.append((read_item, value))

    def unpickle(self) -> None:
        """Put them all into the tree that DCP filled."""
        for read_item, value in self._kept:
            super().load_bytes(read_item, value)


class _Head(io.RawIOBase):
    """Takes what `torch.save` writes and keeps its beginning."""

    def __init__(self) -> None:
        self.kept = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self.kept += bytes(view[: _HEAD_BYTES_MAX - len(self.kept)])
        return len(view)


@functools.lru_cache(256)
def _saved_head(dtype: torch.dtype, sizes: tuple[int, ...]) -> bytes:
    """What `torch.save` writes before the numbers of a contiguous tensor; empty where that is not worth it, or not to be told.

    It holds type, sizes, strides and byte order, so a file that begins like this holds such a tensor right behind it.
    """
    size = math.prod(sizes) * dtype.itemsize
    if not _MARK_BYTES_MIN <= size <= _PLAIN_BYTES_MAX or not (dtype.is_floating_point or dtype in _WHOLE):
        return b""
    like = torch.empty(sizes, dtype=dtype)
    mark = min(size, _MARK_BYTES)
    like.reshape(-1).view(torch.uint8)[:mark] = _MARK[0]
    head = _Head()
    with omit_crc32():
        torch.save(like, head)
    at = head.kept.find(_MARK * mark)
    return head.kept[:at] if at > 0 else b""


def _find_chunk(saved: Any, offset: Sequence[int] | None) -> Any:
    """The chunk of a saved tensor that begins there; None if it is no tensor or has no such chunk."""
    if not isinstance(saved, TensorStorageMetadata):
        return None
    if offset is None:
        return saved.chunks[0] if len(saved.chunks) == 1 else None
    return next((each for each in saved.chunks if tuple(each.offsets) == tuple(offset)), None)


def _read_into(descriptor: int, offset: int, target: torch.Tensor) -> None:
    """Fill a contiguous tensor of this host from a file."""
    memory = (ctypes.c_char * target.nbytes).from_address(target.data_ptr())  # torch's own way there needs NumPy
    room = memoryview(memory).cast("B")
    while room:
        count = os.preadv(descriptor, [room[:_READ_BYTES_MAX]], offset)
        if count == 0:
            raise EOFError(f"the file ends at byte {offset}, within a tensor")
        room, offset = room[count:], offset + count


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)

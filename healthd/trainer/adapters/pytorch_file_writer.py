"""torch.distributed.checkpoint's file writer, with every file going through a `FileWriter`."""

from __future__ import annotations

import contextlib
import math
import os
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystem

from healthd.trainer.checkpoint_storage.checkpoint_files import FileWriter

ALONE_BYTES = 1 << 16


@contextlib.contextmanager
def omit_crc32() -> Iterator[None]:
    """Let torch.save write no CRC-32, which costs more than our checksum of the same bytes; torch.load reads none.

    An option of this thread, in older versions of torch of the process, for as long as we write; some have none.
    """
    if not hasattr(torch.serialization, "set_crc32_options"):
        yield
        return
    computed = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        yield
    finally:
        torch.serialization.set_crc32_options(computed)


class MeasuredWriter(FileSystemWriter):  # type: ignore[misc]  # torch is untyped here
    """Writes what `FileSystemReader` reads. The `FileWriter` syncs, so DCP need not."""

    def __init__(self, directory: Path, files: FileWriter, *, file_per_tensor: bool) -> None:
        """Args: `file_per_tensor`: each tensor of 64 KiB or more has a file, the rest shares one; else one per rank."""
        super().__init__(directory, single_file_per_rank=not file_per_tensor, sync_files=False)
        self.fs = _MeasuredFiles(files)

    def write_data(self, plan: Any, planner: Any) -> Any:
        """As DCP's, but for the dealing into files."""
        with omit_crc32():
            return self._write_items(plan, planner)

    def _write_items(self, plan: Any, planner: Any) -> Any:
        if self.single_file_per_rank or not hasattr(self, "_write_data"):  # an older torch: a file for every item
            return super().write_data(plan, planner)
        shared = [item for item in plan.items if _measure_item(item) < ALONE_BYTES]
        alone = [[item] for item in plan.items if _measure_item(item) >= ALONE_BYTES]
        buckets: queue.Queue[tuple[Path, str, list[Any]]] = queue.Queue()
        for number, bucket in enumerate([shared, *alone]):
            name = f"{plan.storage_data.prefix}{number}.distcp"
            buckets.put((self.path / name, name, bucket))
        return self._write_data(planner, buckets)


class _MeasuredFiles(FileSystem):  # type: ignore[misc]  # torch is untyped here
    """DCP's view of a `FileWriter`."""

    def __init__(self, files: FileWriter) -> None:
        self._files = files

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:  # noqa: ARG002 - DCP's signature
        """DCP opens for writing only, as "wb"."""
        with self._files.create(Path(path).name) as stream:
            yield stream

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """DCP gives the metadata its name last."""
        super().rename(path, new_path)
        self._files.renamed(Path(path).name, Path(new_path).name)


def _measure_item(item: Any) -> int:
    if item.tensor_data is None:
        return 0
    elements: int = math.prod(item.tensor_data.chunk.sizes)
    return elements * int(item.tensor_data.properties.dtype.itemsize)

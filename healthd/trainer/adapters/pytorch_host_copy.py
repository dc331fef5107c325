"""A copy of a training state in host memory: the one thing training has to wait for while it is saved."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

Path = tuple[Any, ...]


class HostCopy:
    """Buffers in the shape of a state, filled again at each save: made once, and page-locked where there is a GPU."""

    def __init__(self) -> None:
        self._buffers: dict[Path, torch.Tensor] = {}

    def take(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The same tree with everything copied; valid until the next call.

        Raises:
            TypeError: names what cannot be copied, such as a tensor sharded in a way other than DTensor's (FSDP version 1):
                save that one synchronously.
        """
        copied: dict[str, Any] = self._copy((), tree)
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        return copied

    def _copy(self, path: Path, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._copy((*path, key), each) for key, each in value.items()}
        if isinstance(value, list | tuple):  # an optimizer's betas must come back as the tuple they are
            copied = [self._copy((*path, number), each) for number, each in enumerate(value)]
            return type(value)(*copied) if hasattr(value, "_fields") else type(value)(copied)
        if isinstance(value, DTensor):
            local = self._filled(path, value.to_local())
            return DTensor(local, value._spec, requires_grad=False)  # noqa: SLF001 - from_local would move it to the mesh
        if isinstance(value, torch.Tensor):
            return self._filled(path, value)
        if hasattr(value, "local_shards"):
            raise TypeError(f"{'.'.join(map(str, path))}: {type(value).__name__} cannot be copied aside")
        try:
            return copy.deepcopy(value)  # a module's extra state may be anything, and training keeps changing it
        except Exception as error:
            text = f"{'.'.join(map(str, path))}: {type(value).__name__} cannot be copied aside: {error}"
            raise TypeError(text) from error

    def _filled(self, path: Path, source: torch.Tensor) -> torch.Tensor:
        source = source.detach()
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
            self._buffers[path] = buffer
        return buffer.copy_(source, non_blocking=source.is_cuda)


def iterate_leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a tree of dicts and lists, with the keys that lead to it; a DTensor as this rank's part of it."""
    if isinstance(tree, dict | list):
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from iterate_leaves(value, (*path, key))
    else:
        yield path, tree.to_local() if isinstance(tree, DTensor) else tree


def fill_leaf(tree: Any, path: Path, value: Any) -> None:
    """Set a leaf: a tensor in place, so that what holds it has it.

    Raises:
        KeyError: there is no such leaf.
        ValueError: a tensor of another shape.
    """
    for key in path[:-1]:
        tree = tree[key]
    leaf = tree[path[-1]]
    local = leaf.to_local() if isinstance(leaf, DTensor) else leaf
    if not isinstance(local, torch.Tensor):
        tree[path[-1]] = value
        return
    if local.shape != value.shape:
        raise ValueError(f"{'.'.join(map(str, path))}: {tuple(local.shape)} here, {tuple(value.shape)} saved")
    with torch.no_grad():
        local.copy_(value)

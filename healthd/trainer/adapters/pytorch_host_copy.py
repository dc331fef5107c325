"""A copy of a training state in host memory: the one thing training has to wait for while it is saved.

On a GPU it need not even wait: `HostCopy.begin` copies on a stream of its own while the next step computes gradients.
Parameters and the optimizer's state change only in the next update, which waits on the GPU for the copy. Everything else,
such as a module's buffers, may change in the next forward pass, and is copied before that on training's own stream.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch.distributed.tensor import DTensor

from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError

Path = tuple[Any, ...]
Fill = Callable[[Path, torch.Tensor], torch.Tensor]  # copies a leaf into its buffer, now or later


class CopyEvent(Protocol):
    """The end of copies that were enqueued."""

    def synchronize(self) -> None:
        """Wait for it."""

    def order(self) -> None:
        """Have what training enqueues from now on wait for it, without waiting here."""


class CopyStream(Protocol):
    """Copies behind what training has enqueued so far, and beside what it enqueues later."""

    def takes(self, source: torch.Tensor) -> bool:
        """Whether it can copy this tensor."""

    def enqueue(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> CopyEvent:
        """Copy the second of each pair into the first."""


class CudaCopyStream:
    """A CUDA stream of the current device."""

    def __init__(self) -> None:
        self._stream = torch.cuda.Stream()

    def takes(self, source: torch.Tensor) -> bool:
        """Whether it is on that device."""
        return bool(source.device == self._stream.device)

    def enqueue(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> CopyEvent:
        """Start copying."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for target, source in copies:
                target.copy_(source, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        return _CudaCopyEvent(event)


class _CudaCopyEvent:
    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def synchronize(self) -> None:
        self._event.synchronize()

    def order(self) -> None:
        torch.cuda.current_stream().wait_event(self._event)


class PendingCopy:
    """A copy that may still be under way."""

    def __init__(
        self,
        tree: dict[str, Any],
        event: CopyEvent | None = None,
        sources: Iterable[torch.Tensor] = (),
    ) -> None:
        """Args: `event`: None: it is complete; `sources`: are kept until it is."""
        self._tree, self._event = tree, event
        self._sources = [(source, source._version) for source in sources]  # noqa: SLF001 - counts changes in place
        self._ordered = False
        self._torn = ""  # why the copy may be of two states
        self._lock = threading.Lock()

    def order_before_update(self) -> None:
        """Call in training's thread before the parameters change."""
        with self._lock:
            if self._event is None or self._ordered:
                return
            if is_capturing_graph():
                self._torn = "an update was captured in a CUDA graph while it was copied"
                return
            self._check_sources()
            self._event.order()
            self._ordered = True

    def wait(self) -> dict[str, Any]:
        """The whole copy. Call it in one thread.

        Raises:
            CheckpointError: the state changed while it was copied.
        """
        if self._event is not None:
            self._event.synchronize()
        with self._lock:
            if not self._ordered:  # else what changed the sources came after the copy
                self._check_sources()
            self._event, self._sources = None, []
        if self._torn:
            raise CheckpointError(f"the state was not copied to host memory: {self._torn}")
        return self._tree

    def _check_sources(self) -> None:
        if any(source._version != version for source, version in self._sources):  # noqa: SLF001 - as above
            self._torn = "it changed in place while it was copied; change parameters only in the optimizer's update"


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

        def fill(path: Path, source: torch.Tensor) -> torch.Tensor:
            return self._buffer(path, source).copy_(source, non_blocking=source.is_cuda)

        copied: dict[str, Any] = self._copy((), tree, fill)
        if torch.cuda.is_initialized():
            torch.cuda.current_stream().synchronize()
        return copied

    def begin(self, tree: dict[str, Any], settled: Collection[int], stream: CopyStream) -> PendingCopy:
        """Begin to copy everything; valid until the next call, which must come after the copy has been waited for.

        Args:
            tree: the state.
            settled: storages (`list_update_storages`) that do not change before `PendingCopy.order_before_update`.
            stream: copies; what it does not take is copied at once.

        Raises:
            TypeError: as `take`.
        """
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def fill(path: Path, source: torch.Tensor) -> torch.Tensor:
            buffer, beside = self._buffer(path, source), stream.takes(source)
            if beside and source.untyped_storage().data_ptr() in settled:
                pairs.append((buffer, source))
                return buffer
            return buffer.copy_(source, non_blocking=source.is_cuda and beside)

        copied: dict[str, Any] = self._copy((), tree, fill)
        return PendingCopy(copied, stream.enqueue(pairs), [source for _, source in pairs])

    def _copy(self, path: Path, value: Any, fill: Fill) -> Any:
        if isinstance(value, dict):
            return {key: self._copy((*path, key), each, fill) for key, each in value.items()}
        if isinstance(value, list | tuple):  # an optimizer's betas must come back as the tuple they are
            copied = [self._copy((*path, number), each, fill) for number, each in enumerate(value)]
            return type(value)(*copied) if hasattr(value, "_fields") else type(value)(copied)
        if isinstance(value, DTensor):
            local = fill(path, value.to_local().detach())
            return DTensor(local, value._spec, requires_grad=False)  # noqa: SLF001 - from_local would move it to the mesh
        if isinstance(value, torch.Tensor):
            return fill(path, value.detach())
        if hasattr(value, "local_shards"):
            raise TypeError(f"{'.'.join(map(str, path))}: {type(value).__name__} cannot be copied aside")
        try:
            return copy.deepcopy(value)  # a module's extra state may be anything, and training keeps changing it
        except Exception as error:
            text = f"{'.'.join(map(str, path))}: {type(value).__name__} cannot be copied aside: {error}"
            raise TypeError(text) from error

    def _buffer(self, path: Path, source: torch.Tensor) -> torch.Tensor:
        buffer = self._buffers.get(path)
        if buffer is None or buffer.shape != source.shape or buffer.dtype != source.dtype:
            buffer = torch.empty(source.shape, dtype=source.dtype, pin_memory=source.is_cuda)
            self._buffers[path] = buffer
        return buffer


def is_capturing_graph() -> bool:
    """Whether what this thread enqueues is recorded in a CUDA graph."""
    return torch.cuda.is_initialized() and bool(torch.cuda.is_current_stream_capturing())


def list_update_storages(optimizers: Iterable[torch.optim.Optimizer]) -> set[int]:
    """Addresses of the storages that only the optimizers' updates change: their parameters, and their own state."""
    found = set()
    for optimizer in optimizers:
        own = [value for state in optimizer.state.values() for value in state.values()]
        for each in (*own, *(parameter for group in optimizer.param_groups for parameter in group["params"])):
            if isinstance(each, torch.Tensor):
                local = each.to_local() if isinstance(each, DTensor) else each
                found.add(local.untyped_storage().data_ptr())
    return found


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

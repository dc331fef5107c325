"""A simulated `cuda` for torch: device names map to the processor, and wrong use of devices fails as it would on a GPU.

Tensors made for `cuda:N` are marked, and say that device. An operation on tensors of two devices is an error, except for
copies. Every use counts as a CUDA context of the device that it concerns: an explicit one, or the current one of the thread,
which is GPU 0 until the thread selects another. Streams and events exist and do nothing but tell time.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from tests.unit.preflight.simulated_scaled_mm import build_scaled_mm

MEMORY_BYTES = 96 << 20
PRODUCT = "NVIDIA Simulated"
CAPABILITY = (10, 0)
_BETWEEN_DEVICES = {
    "copy_",
    "to",
    "cpu",
    "cuda",
    "__get__",
    "__set__",
    "__getitem__",
    "__setitem__",
}  # indices may be on the host


class CudaState:
    """The devices of a process: how many there are, the current one of each thread, and who has a context."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.contexts: set[int] = set()
        self.taken_bytes = 0
        self._current = threading.local()

    @property
    def current(self) -> int:
        """This thread's device."""
        return int(getattr(self._current, "index", 0))

    @current.setter
    def current(self, index: int) -> None:
        self._current.index = index

    def use(self, device: Any = None) -> torch.device:
        """A device that a call names, or the current one; it has a context from now on."""
        index = self.find_index(device)
        self.contexts.add(index)
        return torch.device("cuda", index)

    def allocate(self, tensor: torch.Tensor) -> None:
        """Count a new tensor's memory while it exists.

        Raises:
            torch.OutOfMemoryError: the GPU has less.
        """
        size = tensor.numel() * tensor.element_size()
        if self.taken_bytes + size > MEMORY_BYTES:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes")
        self.taken_bytes += size
        weakref.finalize(tensor, self._release, size)

    def _release(self, size: int) -> None:
        self.taken_bytes -= size

    def find_index(self, device: Any = None) -> int:
        """The number of a device by any of its names."""
        if isinstance(device, int):
            index = device
        else:
            found = None if device is None else torch.device(device)
            index = self.current if found is None or found.index is None else int(found.index)
        if not 0 <= index < self.count:
            raise RuntimeError("CUDA error: invalid device ordinal")
        return index


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


class DeviceMapping(TorchFunctionMode):
    """Runs on the processor what is meant for a simulated GPU."""

    def __init__(self, state: CudaState) -> None:
        super().__init__()
        self._state = state

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__" and func == torch.Tensor.device.__get__:
            return getattr(args[0], "simulated", None) or func(*args, **kwargs)
        if name == "__get__" and func == torch.Tensor.is_cuda.__get__:
            return hasattr(args[0], "simulated")
        if name == "pin_memory":
            return args[0]
        kwargs.pop("pin_memory", None)
        named = [value for value in (*args, *kwargs.values()) if _is_cuda(value)]
        wanted = self._state.use(named[0]) if named else self._find_tensor_device(name, (args, kwargs))
        if name == "cpu" or (name == "to" and not named and _names_host(args[1:], kwargs)):
            return _unmark(func(*args, **kwargs))
        args = tuple(torch.device("cpu") if _is_cuda(value) else value for value in args)
        kwargs = {key: torch.device("cpu") if _is_cuda(value) else value for key, value in kwargs.items()}
        found = func(*args, **kwargs)
        if name == "empty" and wanted is not None:
            self._state.allocate(found)
        if name == "to" and named and found is args[0]:
            found = found.clone()
        if wanted is not None and name != "copy_":
            for tensor in _iterate_tensors(found):
                tensor.simulated = wanted
        return found

    def _find_tensor_device(self, name: str, values: Any) -> torch.device | None:
        tensors = list(_iterate_tensors(values))
        marked = {tensor.simulated for tensor in tensors if hasattr(tensor, "simulated")}
        if not marked:
            return None
        strangers = [t for t in tensors if not hasattr(t, "simulated") and t.dim() and name not in _BETWEEN_DEVICES]
        if len(marked) > 1 or strangers:
            raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
        return self._state.use(next(iter(marked)))


def _names_host(args: Any, kwargs: Any) -> bool:
    return any(value == "cpu" or value == torch.device("cpu") for value in (*args, *kwargs.values()) if _is_name(value))


def _is_name(value: object) -> bool:
    return isinstance(value, (str, torch.device))


def _iterate_tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            yield from _iterate_tensors(value)
    elif isinstance(values, dict):
        yield from _iterate_tensors(list(values.values()))


def _unmark(tensor: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        return tensor.clone()


class Event:
    """A moment."""

    def __init__(self, *, enable_timing: bool = False, **_: object) -> None:
        self._timed, self._at = enable_timing, 0.0

    def record(self, _stream: object = None) -> None:
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Nothing runs apart."""

    def query(self) -> bool:
        return True

    def wait(self, _stream: object = None) -> None:
        """Nothing runs apart."""

    def elapsed_time(self, other: Event) -> float:
        if not (self._timed and other._timed and self._at and other._at):
            raise RuntimeError("Both events must be created with argument 'enable_timing=True' and recorded.")
        return (other._at - self._at) * 1e3


class Stream:
    """A stream: everything is done at once."""

    def __init__(self, device: Any = None, **_: object) -> None:
        self.device = device

    def wait_stream(self, _other: Stream) -> None:
        """Nothing runs apart."""

    def wait_event(self, _event: Event) -> None:
        """Nothing runs apart."""

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record()
        return event

    def synchronize(self) -> None:
        """Nothing runs apart."""


def install_cuda(patch: pytest.MonkeyPatch, count: int = 2) -> CudaState:
    """Simulate `count` GPUs in this process, in threads that start from now on, too. Enter `DeviceMapping` besides."""
    state = CudaState(count)

    @contextlib.contextmanager
    def select(device: Any) -> Iterator[None]:
        before, state.current = state.current, state.find_index(device)
        try:
            yield
        finally:
            state.current = before

    properties = SimpleNamespace(
        name=PRODUCT,
        major=CAPABILITY[0],
        minor=CAPABILITY[1],
        multi_processor_count=4,
        total_memory=MEMORY_BYTES,
        L2_cache_size=1 << 20,
    )
    stubs: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "is_initialized": lambda: bool(state.contexts),
        "init": state.use,
        "device_count": lambda: count,
        "set_device": lambda device: setattr(state, "current", state.use(device).index),
        "current_device": lambda: state.current,
        "device": select,
        "stream": lambda _stream: contextlib.nullcontext(
            state.use()
        ),  # at its end torch selects the thread's device again
        "current_stream": lambda device=None: Stream(state.use(device)),
        "Stream": lambda device=None, **_: Stream(state.use(device)),
        "Event": Event,
        "synchronize": lambda device=None: state.use(device) and None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda device=None: state.use(device) and (MEMORY_BYTES - state.taken_bytes, MEMORY_BYTES),
        "get_device_properties": lambda device=None: state.use(device) and properties,
        "get_device_capability": lambda device=None: state.use(device) and CAPABILITY,
        "get_device_name": lambda device=None: state.use(device) and PRODUCT,
    }
    for name, stub in stubs.items():
        patch.setattr(torch.cuda, name, stub)
    patch.setattr(torch.version, "cuda", "13.0")
    patch.setattr(torch, "_scaled_mm", build_scaled_mm())
    make_generator = torch.Generator

    def generator(device: Any = "cpu") -> torch.Generator:
        return make_generator(torch.device("cpu") if _is_cuda(device) and state.use(device) else device)

    patch.setattr(torch, "Generator", generator)
    run = threading.Thread.run

    def run_mapped(thread: threading.Thread) -> None:
        with DeviceMapping(state):
            run(thread)

    patch.setattr(threading.Thread, "run", run_mapped)
    return state

"""Devices for torch: identity, memory for tests, and the process group over all of them."""

from __future__ import annotations

import datetime as dt
import functools
import os
import platform
import time
from collections.abc import Callable, Iterator

import torch

from preflight.check_context import Context, Device
from preflight.results import Outcome, Result
from preflight.worker_messages import DeviceAssignment, DeviceReady, DeviceRefused, ProcessGroupSpec

HOST_BYTES = 64 << 20  # enough to exceed most CPU caches, little enough for a gate of seconds
GPU_BLOCK_BYTES = 256 << 20
GPU_SPARE_BYTES = 6 * GPU_BLOCK_BYTES + (512 << 20)  # temporary patterns, and torch's own memory


def run_on_device(test: Callable[[Context, Device], Result]) -> Callable[[Context], Iterator[Result]]:
    """Make a check of a test of one device: one result for this process's device."""

    @functools.wraps(test)
    def check(context: Context) -> Iterator[Result]:
        if context.device is not None:
            yield test(context, context.device)

    return check


def claim_device(seat: DeviceAssignment) -> DeviceReady | DeviceRefused:
    """Assign this process the device of `seat`. CUDA must not have been used before, as it sees only that device afterwards."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = seat.visible
    torch.set_num_threads(seat.threads)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if seat.torch_name == "cpu":
        return DeviceReady(_build_device(seat, platform.machine(), HOST_BYTES), collect_library_versions())
    if torch.version.cuda is None:
        reason = f"torch {torch.__version__} is built for CPUs only; install its CUDA build"
        return DeviceRefused(Outcome.NOT_RUN, reason, misconfigured=True)
    if not torch.cuda.is_available():
        torch.cuda.init()  # raises CUDA's own reason, which says whether the machine is misconfigured
        reason = f"torch {torch.__version__} cannot use {seat.label}, which the driver shows; check whether the driver is too old for this torch"
        return DeviceRefused(Outcome.ERROR, reason)
    torch.cuda.set_device(seat.torch_name)
    free, total = torch.cuda.mem_get_info(seat.torch_name)
    usable = free - GPU_SPARE_BYTES
    if usable < GPU_BLOCK_BYTES:
        reason = f"only {free >> 20} of {total >> 20} MiB are free; stop the processes that use the rest"
        return DeviceRefused(Outcome.NOT_RUN, reason, misconfigured=True)
    product = seat.product or torch.cuda.get_device_name(seat.torch_name)
    return DeviceReady(_build_device(seat, product, usable), collect_library_versions())


def _build_device(seat: DeviceAssignment, product: str, memory_bytes: int) -> Device:
    return Device(
        name=seat.name,
        torch_name=seat.torch_name,
        index=seat.index,
        label=seat.label,
        uuid=seat.uuid,
        product=product,
        memory_bytes=memory_bytes,
    )


def collect_library_versions() -> dict[str, str]:
    """The versions of this process that results depend on."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda is not None:
        versions["cuda"] = str(torch.version.cuda)
        versions["cudnn"] = str(torch.backends.cudnn.version())
    if torch.version.cuda is not None and torch.distributed.is_nccl_available():
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    try:
        import triton  # noqa: PLC0415 - without it torch alone does the work
    except ModuleNotFoundError:
        return versions
    return versions | {"triton": str(triton.__version__)}


def join_process_group(group: ProcessGroupSpec, device: Device) -> None:
    """Create torch's default process group over all devices, and use it once: then NCCL has connected them."""
    torch.distributed.init_process_group(
        backend="gloo" if device.on_host else "nccl",
        init_method=f"file://{group.path}",
        rank=device.index,
        world_size=group.ranks,
        timeout=dt.timedelta(seconds=group.seconds),
        device_id=None if device.on_host else torch.device(device.torch_name),
    )
    torch.distributed.all_reduce(torch.zeros(1, dtype=torch.int32, device=device.torch_name))
    synchronize_device(device)


def select_device(device: Device) -> None:
    """Make it the current device of this thread. A new thread starts on GPU 0, and would create a context of 0.5 GB there."""
    if not device.on_host:
        torch.cuda.set_device(device.torch_name)


def synchronize_device(device: Device) -> None:
    """Wait for all work on the device, so that its errors appear here."""
    if not device.on_host:
        torch.cuda.synchronize(device.torch_name)


def start_timer(device: Device) -> Callable[[], float]:
    """Start timing the work that follows on the device; call the result at its end for the seconds that it took.

    On a GPU by events in its stream: launches and interrupts of the host's processor do not count.
    """
    if device.on_host:
        began = time.perf_counter()
        return lambda: time.perf_counter() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()

    def read_seconds() -> float:
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1e3

    return read_seconds


def release_device_memory(device: Device) -> None:
    """Wait for remaining work of a test, and release its memory for the next."""
    synchronize_device(device)
    if not device.on_host:
        torch.cuda.empty_cache()

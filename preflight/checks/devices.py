"""Which devices torch computes on here, and how much of each a test may use."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import torch

from preflight.checks.gpu_state import gpus_on_bus

HOST_BYTES = 96 << 20  # enough to leave every cache of a processor, little enough for a gate of seconds
GPU_BLOCK_BYTES = 256 << 20
GPU_SPARE_BYTES = 6 * GPU_BLOCK_BYTES + (512 << 20)  # patterns being computed, and what torch itself takes


class Device(msgspec.Struct, frozen=True):
    """One device; `label` says in words what is tested. `idle_gpus` counts GPUs that torch cannot compute on."""

    name: str
    label: str
    memory_bytes: int
    block_bytes: int
    matmul_size: int
    matmul_repeats: int
    idle_gpus: int = 0

    @property
    def on_host(self) -> bool:
        """Not a GPU: then host memory and the processor are what is tested."""
        return self.name == "cpu"

    def synchronize(self) -> None:
        """Wait until everything asked of the device is done, so that its errors appear here."""
        if not self.on_host:
            torch.cuda.synchronize(self.name)


def devices() -> list[Device]:
    """All GPUs torch sees; the host, labelled as such, if there are none."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_tf32 = False
    if not torch.cuda.is_available():
        return [Device("cpu", "host memory and processor", HOST_BYTES, 4 << 20, 384, 4, gpus_on_bus())]
    return [_gpu(index) for index in range(torch.cuda.device_count())]


def _gpu(index: int) -> Device:
    free, _ = torch.cuda.mem_get_info(index)
    usable = free - GPU_SPARE_BYTES
    if usable < GPU_BLOCK_BYTES:
        raise MemoryError(f"{free >> 20} MiB free on GPU {index}; end what uses it")
    label = f"{torch.cuda.get_device_name(index)}, {usable >> 20} MiB"
    return Device(f"cuda:{index}", label, usable, GPU_BLOCK_BYTES, 8192, 10)


def as_bits(tensor: Any) -> Any:
    """The bits of a floating-point tensor as integers of the same width: so NaN equals itself."""
    return tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])

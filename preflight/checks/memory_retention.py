"""Retention: do memory cells keep their charge while the card is hot? Writes, holds under load, and verifies.

Random words and their complement, so that every cell is held once in each state. In the meantime nothing accesses them: the
load is products and copies in separate buffers, which heat chip and memory.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from preflight.check_context import Context, Device, Note
from preflight.checks.memory_allocation import AllocatedMemory, allocate_test_memory, warm_up_kernels
from preflight.checks.memory_diagnosis import Diagnosis, build_failed_result, diagnose_decay, diagnose_errors
from preflight.checks.memory_fault_injection import MemoryFaultInjector
from preflight.checks.torch_devices import run_on_device, synchronize_device
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.kernels.memory_errors import Errors
from preflight.kernels.memory_patterns import GATE, Pattern, reseed_patterns
from preflight.kernels.memory_sweeps import hold_and_verify
from preflight.results import Evidence, Result

TEST = "memory_retention"
PATTERNS = (GATE[1], GATE[1].inverted())
GPU_SIZE, HOST_SIZE = 4096, 256
GPU_COPY_BYTES, HOST_COPY_BYTES = 128 << 20, 1 << 20  # on a GPU more than its cache holds
BURST = 16
GPU_SENSOR, MEMORY_TEMPERATURE = 0, 82  # NVML_TEMPERATURE_GPU, NVML_FI_DEV_MEMORY_TEMP


@run_on_device
def check_memory_retention(context: Context, device: Device) -> Result:
    """Hold each pattern for half of the test's duration."""
    heat = HeatLoad(device)  # before the test memory is allocated
    room = allocate_test_memory(device, context.note)
    if not room.pieces:
        return room.empty(TEST)
    if not device.on_host:
        warm_up_kernels(room.way, device, PATTERNS)
    hold_s = context.seconds / len(PATTERNS)
    spoil = MemoryFaultInjector(context.fault, room.pieces)
    found = [
        errors for pattern in PATTERNS if (errors := _hold_pattern(context, room, heat, pattern, hold_s, spoil)).wrong
    ]
    evidence: Evidence = {"patterns": len(PATTERNS), "held_s": round(hold_s, 3), "bursts": heat.bursts}
    evidence |= read_temperatures(device, context.note)
    so_far = room.passed(TEST, room.figures, evidence)
    if not found:
        return so_far
    return build_failed_result(so_far, found, _diagnose_retention(room, found, context), device)


class HeatLoad:
    """Products and copies, prepared while memory is available."""

    def __init__(self, device: Device) -> None:
        size, words = (HOST_SIZE, HOST_COPY_BYTES // 8) if device.on_host else (GPU_SIZE, GPU_COPY_BYTES // 8)
        kind = torch.float32 if device.on_host else torch.bfloat16
        source = torch.Generator(device.torch_name).manual_seed(size)
        self._left, self._right, self._output = (
            torch.randn((size, size), generator=source, device=device.torch_name).to(kind) for _ in range(3)
        )
        self._from: Any = torch.arange(words, device=device.torch_name)
        self._to: Any = torch.empty_like(self._from)
        self._device = device
        self.bursts = 0
        self._burst()  # loads the library and its memory before the test memory is allocated

    def hold(self, seconds: float) -> None:
        """Run for this long, at least one burst."""
        until = time.perf_counter() + seconds
        while True:
            self._burst()
            self.bursts += 1
            if time.perf_counter() >= until:
                return

    def _burst(self) -> None:
        for _ in range(BURST):
            torch.mm(self._left, self._right, out=self._output)
            self._to.copy_(self._from)
        synchronize_device(self._device)


def _hold_pattern(
    context: Context, room: AllocatedMemory, heat: HeatLoad, pattern: Pattern, hold_s: float, spoil: MemoryFaultInjector
) -> Errors:
    def wait() -> None:
        context.note(f"{room.device.name}: holding {pattern.name} for {hold_s:.1f} s under heat")
        heat.hold(hold_s)
        spoil(pattern)
        context.note(f"{room.device.name}: verifying {pattern.name}")

    return hold_and_verify(room.way, room.pieces, pattern, wait)


def _diagnose_retention(room: AllocatedMemory, found: list[Errors], context: Context) -> Diagnosis:
    """Repeat without waiting: if the data is correct then, the cells did not keep their charge."""
    context.note(f"{room.device.name}: errors found; checking again without the hold time")
    second = [hold_and_verify(room.way, room.pieces, pattern, lambda: None) for pattern in reseed_patterns(PATTERNS, 1)]
    if not any(errors.wrong for errors in second):
        return diagnose_decay(found)
    return diagnose_errors(found, second, {pattern.name: pattern for pattern in PATTERNS}, room.words)


def read_temperatures(device: Device, note: Note) -> Evidence:
    """Temperatures of a GPU and its memory in °C, if the driver reports them; none for the host."""
    if device.on_host:
        return {}
    note(f"{device.name}: temperature")
    try:
        driver = NvmlDriver()
    except NoDriverError:
        return {}
    gpu = driver.gpu(device.uuid)
    if gpu is None:
        return {}
    read = {
        "gpu_temperature_c": driver.number("DeviceGetTemperature", gpu, GPU_SENSOR),
        "memory_temperature_c": driver.field(gpu, MEMORY_TEMPERATURE),
    }
    return {name: value for name, value in read.items() if value is not None}

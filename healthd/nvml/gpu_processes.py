"""Processes that hold a GPU, and the MIG instances it is divided into."""

from __future__ import annotations

from typing import Any

import pynvml

from healthd.nvml.gpu_reading import Ask, make_fallback_query

PROCESSES_MAX = 256  # per GPU; more entries add no information


def make_process_query() -> Ask:
    """Return a query for the compute processes with the memory they hold; None where the driver does not know it."""
    running = make_fallback_query(
        pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2
    )
    return lambda handle: [
        {"pid": process.pid, "memory_bytes": process.usedGpuMemory} for process in running(handle)[:PROCESSES_MAX]
    ]


def read_mig_state(handle: Any) -> dict[str, Any]:
    """Return whether the GPU is divided, and the UUIDs of its instances.

    Raises:
        NVMLError: it cannot be divided (not supported), or does not answer.
    """
    current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    if current != pynvml.NVML_DEVICE_MIG_ENABLE:
        return {"mig_enabled": False}
    parts = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            parts.append(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)))
        except pynvml.NVMLError_NotFound:  # the numbers have gaps
            continue
    return {"mig_enabled": True, "mig_devices": parts}

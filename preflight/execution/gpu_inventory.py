"""The driver's data on GPUs before a run: identity, free memory, running processes."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.host.nvml_library import NoDriverError, count_gpus, load_nvml
from preflight.results import Outcome
from preflight.worker_messages import GpuInfo, GpuInventory, GpuProcess, MigInstance

Note = Callable[[str], None]


def read_gpu_inventory(note: Note) -> GpuInventory:
    """Query the driver. May hang with it."""
    here = count_gpus()
    try:
        library = load_nvml(note)
    except NoDriverError as error:
        failure = "" if error.outcome is Outcome.NOT_APPLICABLE else error.reason
        return GpuInventory(on_bus=here, failure=failure, misconfigured=error.misconfigured)
    try:
        count, driver = library.nvmlDeviceGetCount(), library.nvmlSystemGetDriverVersion()
    except library.NVMLError as error:
        return GpuInventory(on_bus=here, failure=f"the driver does not count its GPUs: {error}")
    return GpuInventory(
        on_bus=here, gpus=tuple(_read_gpu(library, index, note) for index in range(count)), driver=driver
    )


def _read_gpu(library: Any, index: int, note: Note) -> GpuInfo:
    note(f"GPU {index}: product and processes")
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid, product = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle)
        total, free = _read_memory(library, handle)
    except library.NVMLError_GpuIsLost:
        return GpuInfo(index=index, unread="the driver has lost the GPU")
    except library.NVMLError as error:
        return GpuInfo(index=index, unread=f"the driver cannot read it: {error}")
    mig = _has_mig(library, handle)
    return GpuInfo(
        index=index,
        uuid=uuid,
        product=product,
        memory_total=total,
        memory_free=free,
        processes=_list_processes(library, handle),
        mig=mig,
        instances=_list_mig_instances(library, handle) if mig else (),
    )


def _read_memory(library: Any, handle: Any) -> tuple[int, int]:
    """Total and free bytes; None if the GPU shares host memory."""
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError_NotSupported:
        return 0, 0
    return memory.total, memory.free


def _list_processes(library: Any, handle: Any) -> tuple[GpuProcess, ...]:
    """Processes on the GPU. If the driver cannot list them, too little free memory still shows that the GPU is in use."""
    try:
        found = library.nvmlDeviceGetComputeRunningProcesses(handle)
    except library.NVMLError:
        return ()
    return tuple(describe_process(item.pid) for item in found if item.pid != os.getpid())


def describe_process(pid: int, proc: Path = Path("/proc")) -> GpuProcess:
    """A process by its id, with user and command if visible."""
    try:
        owner = (proc / str(pid)).stat().st_uid
        command = (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return GpuProcess(pid)
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return GpuProcess(pid, user, command)


def _has_mig(library: Any, handle: Any) -> bool:
    try:
        return bool(library.nvmlDeviceGetMigMode(handle)[0])
    except library.NVMLError:
        return False  # a product without MIG


def _list_mig_instances(library: Any, handle: Any) -> tuple[MigInstance, ...]:
    found = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(MigInstance(library.nvmlDeviceGetUUID(instance), library.nvmlDeviceGetName(instance)))
        except library.NVMLError_NotFound:
            continue  # numbers without an instance
    return tuple(found)

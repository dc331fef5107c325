"""What the driver tells of the GPUs before anything runs on them: who they are, what is free, who computes there."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

from preflight.driver import NoDriverError, gpus_here, load
from preflight.messages import Gpu, Instance, Inventory, Process
from preflight.results import Outcome

Note = Callable[[str], None]


def inventory(note: Note) -> Inventory:
    """Ask the driver. May hang with it."""
    here = gpus_here()
    try:
        library = load(note)
    except NoDriverError as error:
        failure = "" if error.outcome is Outcome.NOT_APPLICABLE else error.reason
        return Inventory(on_bus=here, failure=failure, misconfigured=error.misconfigured)
    try:
        count, driver = library.nvmlDeviceGetCount(), library.nvmlSystemGetDriverVersion()
    except library.NVMLError as error:
        return Inventory(on_bus=here, failure=f"the driver does not count its GPUs: {error}")
    return Inventory(on_bus=here, gpus=tuple(_gpu(library, index, note) for index in range(count)), driver=driver)


def _gpu(library: Any, index: int, note: Note) -> Gpu:
    note(f"GPU {index}: what it is, and who uses it")
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid, product = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle)
        total, free = _memory(library, handle)
    except library.NVMLError_GpuIsLost:
        return Gpu(index=index, unread="the driver has lost it")
    except library.NVMLError as error:
        return Gpu(index=index, unread=f"the driver cannot read it: {error}")
    mig = _has_mig(library, handle)
    return Gpu(
        index=index,
        uuid=uuid,
        product=product,
        memory_total=total,
        memory_free=free,
        processes=_processes(library, handle),
        mig=mig,
        instances=_instances(library, handle) if mig else (),
    )


def _memory(library: Any, handle: Any) -> tuple[int, int]:
    """Bytes, all and free; none where the GPU shares the host's."""
    try:
        memory = library.nvmlDeviceGetMemoryInfo(handle)
    except library.NVMLError_NotSupported:
        return 0, 0
    return memory.total, memory.free


def _processes(library: Any, handle: Any) -> tuple[Process, ...]:
    """Who computes there. A driver that can't tell is taken at that: too little free memory shows a user all the same."""
    try:
        found = library.nvmlDeviceGetComputeRunningProcesses(handle)
    except library.NVMLError:
        return ()
    return tuple(process_of(item.pid) for item in found if item.pid != os.getpid())


def process_of(pid: int, proc: Path = Path("/proc")) -> Process:
    """A process by its number: its user and command, where they can be seen."""
    try:
        owner = (proc / str(pid)).stat().st_uid
        command = (proc / str(pid) / "comm").read_text().strip()
    except OSError:
        return Process(pid)
    try:
        user = pwd.getpwuid(owner).pw_name
    except KeyError:
        user = str(owner)
    return Process(pid, user, command)


def _has_mig(library: Any, handle: Any) -> bool:
    try:
        return bool(library.nvmlDeviceGetMigMode(handle)[0])
    except library.NVMLError:
        return False  # a product without


def _instances(library: Any, handle: Any) -> tuple[Instance, ...]:
    found = []
    for number in range(library.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            instance = library.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
            found.append(Instance(library.nvmlDeviceGetUUID(instance), library.nvmlDeviceGetName(instance)))
        except library.NVMLError_NotFound:
            continue  # numbers without an instance
    return tuple(found)

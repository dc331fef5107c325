"""Chooses the devices to test from the driver's data: all GPUs visible to this process, or two halves of the host. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from preflight.results import Outcome
from preflight.worker_messages import DeviceAssignment, GpuInfo, GpuInventory, GpuProcess, MigInstance

HOST_DEVICES = 2  # so that pair tests have a peer
FREE_SHARE_MIN = 0.8  # of a GPU's memory; below it the GPU must be in use, even if a container hides the process
VISIBLE = "CUDA_VISIBLE_DEVICES"


class UnassignedDevice(msgspec.Struct, frozen=True):
    """A device that cannot be tested, and the reason; all devices if it has no name. `by_test`: a test killed its process."""

    name: str
    outcome: Outcome
    reason: str
    misconfigured: bool = False
    by_test: bool = False


class DeviceAssignments(msgspec.Struct, frozen=True):
    """Devices to test and devices not to test. `left_out` names GPUs hidden from this process."""

    seats: tuple[DeviceAssignment, ...] = ()
    unseated: tuple[UnassignedDevice, ...] = ()
    left_out: str = ""


def _assign_none(outcome: Outcome, reason: str, *, misconfigured: bool = False) -> DeviceAssignments:
    return DeviceAssignments(unseated=(UnassignedDevice("", outcome, reason, misconfigured),))


def assign_devices(seen: GpuInventory, visible: str | None, threads: int) -> DeviceAssignments:
    """Assign every device to a process.

    GPUs of a simulated driver, on a machine without one, are read by `gpu_state` but not used for computing.

    Args:
        seen: the driver's data.
        visible: CUDA_VISIBLE_DEVICES; None if not set.
        threads: how many of the host's processors this process may use.
    """
    if seen.failure and (seen.on_bus or seen.misconfigured):
        return _assign_none(Outcome.NOT_RUN, seen.failure, misconfigured=seen.misconfigured)
    if not seen.on_bus:
        used = explain_gpus_in_use(seen.gpus)
        return used or DeviceAssignments(seats=assign_host_devices(threads, [gpu.uuid for gpu in seen.gpus]))
    if not seen.gpus:
        return _assign_none(
            Outcome.ERROR,
            f"{seen.on_bus} GPUs on the PCI bus, but the driver shows none; check the kernel log for driver errors",
        )
    gpus = select_visible_gpus(seen.gpus, visible)
    if not gpus:
        reason = f"{VISIBLE}={visible} hides all {len(seen.gpus)} GPUs; unset it"
        return _assign_none(Outcome.NOT_RUN, reason, misconfigured=True)
    found = explain_gpus_in_use(gpus) or _assign_whole_gpus(gpus, max(1, threads // len(gpus)))
    return msgspec.structs.replace(found, left_out=_describe_hidden_gpus(seen.gpus, gpus, visible))


def _describe_hidden_gpus(gpus: Sequence[GpuInfo], chosen: Sequence[GpuInfo], visible: str | None) -> str:
    """Describe hidden GPUs, whole cards or MIG instances."""
    hidden = [f"GPU {gpu.index}" for gpu in gpus if gpu not in chosen]
    return (
        f"{VISIBLE}={visible} leaves out {', '.join(hidden)}: the result does not cover the whole node"
        if hidden
        else ""
    )


def assign_host_devices(threads: int, cards: Sequence[str] = ()) -> tuple[DeviceAssignment, ...]:
    """The host as devices, each with its share of the threads. The counters of a simulated GPU (`cards`) are read for each."""
    return tuple(
        DeviceAssignment(
            index=index,
            name=f"cpu:{index}",
            torch_name="cpu",
            threads=max(1, threads // HOST_DEVICES),
            label="host memory and processor",
            card=cards[index] if index < len(cards) else "",
        )
        for index in range(HOST_DEVICES)
    )


def select_visible_gpus(gpus: Sequence[GpuInfo], visible: str | None) -> tuple[GpuInfo, ...]:
    """The GPUs that CUDA would show, in its order: by index or UUID prefix, up to the first unknown entry."""
    if visible is None:
        return tuple(gpus)
    chosen: list[GpuInfo] = []
    for word in filter(None, (part.strip() for part in visible.split(","))):
        found = next(filter(None, (_matches_visible_entry(gpu, word) for gpu in gpus)), None)
        if found is None or found in chosen:
            break
        chosen.append(found)
    return tuple(chosen)


def _matches_visible_entry(gpu: GpuInfo, word: str) -> GpuInfo | None:
    """Whether `word` names this GPU, or its only instance."""
    if word.startswith("MIG-"):
        instances = tuple(instance for instance in gpu.instances if instance.uuid == word)
        return msgspec.structs.replace(gpu, instances=instances) if instances else None
    by_number = word.isdigit() and gpu.index == int(word)
    return gpu if by_number or (not word.isdigit() and gpu.uuid.startswith(word)) else None


def explain_gpus_in_use(gpus: Sequence[GpuInfo]) -> DeviceAssignments | None:
    """Why a GPU is not tested: a process uses it, or most of its memory is taken. A test would disturb a job, and vice versa."""
    busy = [f"GPU {gpu.index} is busy with {_describe_processes(gpu.processes)}" for gpu in gpus if gpu.processes]
    if busy:
        return _assign_none(Outcome.NOT_RUN, f"{'; '.join(busy)}: stop these processes first", misconfigured=True)
    held = [gpu for gpu in gpus if gpu.memory_total and gpu.memory_free < FREE_SHARE_MIN * gpu.memory_total]
    if held:
        gpu = held[0]
        free = f"{gpu.memory_free >> 20} of {gpu.memory_total >> 20} MiB"
        reason = (
            f"GPU {gpu.index}: only {free} are free, though the driver names no process; stop the process that holds it"
        )
        return _assign_none(Outcome.NOT_RUN, reason, misconfigured=True)
    return None


def _describe_processes(processes: Sequence[GpuProcess]) -> str:
    return ", ".join(
        f"process {p.pid} ({p.command} of {p.user})" if p.user else f"process {p.pid} (not visible from here)"
        for p in processes
    )


def _assign_whole_gpus(gpus: Sequence[GpuInfo], threads: int) -> DeviceAssignments:
    """Whole cards see each other; a MIG instance is alone, since CUDA shows a process at most one."""
    cards = ",".join(gpu.uuid for gpu in gpus if not gpu.unread and not gpu.mig)
    seats: list[DeviceAssignment] = []
    unseated: list[UnassignedDevice] = []
    for position, gpu in enumerate(gpus):
        name = f"cuda:{position}"
        if gpu.unread:
            unseated.append(UnassignedDevice(name, Outcome.NOT_RUN, gpu.unread))
        elif not gpu.mig:
            card = cards.split(",").index(gpu.uuid)
            seats.append(
                DeviceAssignment(
                    index=len(seats),
                    name=name,
                    torch_name=f"cuda:{card}",
                    threads=threads,
                    visible=cards,
                    uuid=gpu.uuid,
                    product=gpu.product,
                    label=f"GPU {gpu.index}, {gpu.product}",
                    card=gpu.uuid,
                )
            )
        elif not gpu.instances:
            todo = "MIG is on but there is no instance; create one, or turn MIG off"
            unseated.append(UnassignedDevice(name, Outcome.NOT_RUN, todo, misconfigured=True))
        else:
            for number, instance in enumerate(gpu.instances):
                seats.append(_assign_mig_instance(len(seats), f"{name}/mig{number}", gpu, instance, threads))
    return DeviceAssignments(tuple(seats), tuple(unseated))


def _assign_mig_instance(index: int, name: str, gpu: GpuInfo, instance: MigInstance, threads: int) -> DeviceAssignment:
    return DeviceAssignment(
        index=index,
        name=name,
        torch_name="cuda:0",
        threads=threads,
        visible=instance.uuid,
        uuid=instance.uuid,
        product=instance.product,
        label=f"GPU {gpu.index}, MIG instance, {instance.product}",
        card=gpu.uuid,
        mig=True,
    )

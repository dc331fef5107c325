"""Messages between the runner and its test processes: one JSON record per line, requests on standard input, answers back."""

from __future__ import annotations

import msgspec

from preflight.check_context import Device
from preflight.host.counter_records import CounterReading
from preflight.host.nvml_recording import NvmlRecording
from preflight.results import Outcome, Result

STARTING = "starting"  # the first step of a test: imports

JOINING = "starting NCCL (on the host gloo) over all devices"  # before the first test of peers


class GpuProcess(msgspec.Struct, frozen=True):
    """A process that computes on a GPU. Without a user it is not visible from here (another container's)."""

    pid: int
    user: str = ""
    command: str = ""


class MigInstance(msgspec.Struct, frozen=True):
    """One MIG instance."""

    uuid: str
    product: str


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as reported by its driver. `unread` is the reason why it cannot be used; memory in bytes."""

    index: int
    uuid: str = ""
    product: str = ""
    unread: str = ""
    memory_total: int = 0
    memory_free: int = 0
    processes: tuple[GpuProcess, ...] = ()
    mig: bool = False
    instances: tuple[MigInstance, ...] = ()


class GpuInventory(msgspec.Struct, frozen=True, kw_only=True, tag="inventory"):
    """The GPUs of this machine: `on_bus` from the PCI bus or the device files, `gpus` from the driver.

    `failure` is the reason why the driver did not respond, "" if it did; `misconfigured`: an operator must fix that.
    """

    on_bus: int
    gpus: tuple[GpuInfo, ...] = ()
    driver: str = ""
    failure: str = ""
    misconfigured: bool = False


class DeviceAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """The device of a process. `visible` is its CUDA_VISIBLE_DEVICES; `threads` are the host's.

    `card` is the UUID of the whole GPU, whose hardware counters are read around its tests; empty if there is none.
    """

    index: int
    name: str
    torch_name: str
    threads: int = 1
    visible: str = ""
    uuid: str = ""
    product: str = ""
    label: str = ""
    mig: bool = False
    card: str = ""


class ProcessGroupSpec(msgspec.Struct, frozen=True):
    """The process group over all devices: a new rendezvous file, and the timeout of a collective in seconds."""

    path: str
    ranks: int
    seconds: float


class InventoryRequest(msgspec.Struct, frozen=True, tag="look"):
    """Request: list the GPUs. Answered by an `GpuInventory`."""


class AssignRequest(msgspec.Struct, frozen=True, tag="take"):
    """Request: use this device. Answered by `DeviceReady` or `DeviceRefused`."""

    seat: DeviceAssignment


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="do"):
    """Request: run a test. Answered by any number of `ProgressUpdate` and `ResultMessage`; the last one is marked."""

    test: str
    level: str
    seconds: float
    fault: str = ""
    devices: tuple[Device, ...] = ()
    group: ProcessGroupSpec | None = None


class CounterRequest(msgspec.Struct, frozen=True, tag="count"):
    """Request: read the hardware counters of these GPUs, and the kernel log after record `since`. Answered by a `CounterReading`."""

    uuids: tuple[str, ...]
    since: int | None = None


class NvmlRequest(msgspec.Struct, frozen=True, tag="nvml"):
    """Request: record the driver's raw answers to all queries. Answered by an `NvmlRecording`."""


Request = InventoryRequest | AssignRequest | RunRequest | CounterRequest | NvmlRequest


class DeviceReady(msgspec.Struct, frozen=True, tag="ready"):
    """The device works; `software` are the versions of its process."""

    device: Device
    software: dict[str, str]


class DeviceRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The device cannot be used."""

    outcome: Outcome
    reason: str
    misconfigured: bool = False


class ProgressUpdate(msgspec.Struct, frozen=True, tag="now"):
    """The next step of a test; it hangs there if nothing follows. `step` counts announcements: a lagging process has the lowest."""

    doing: str
    step: int = 0


class ResultMessage(msgspec.Struct, frozen=True, tag="done"):
    """One result, or none; `last` when the test has ended, `raised` if by an exception."""

    result: Result | None
    last: bool
    raised: bool = False


Answer = GpuInventory | CounterReading | NvmlRecording | DeviceReady | DeviceRefused | ProgressUpdate | ResultMessage


class CompiledKernels(msgspec.Struct, frozen=True):
    """The kernels compiled ahead of time for one architecture, such as 90. `launcher` is why nothing launches them without a C compiler."""

    architecture: int
    kernels: int
    seconds: float
    launcher: str = ""

"""What the runner and its test processes say to each other: one JSON record a line, requests on standard input, answers back."""

from __future__ import annotations

import msgspec

from preflight.check_context import Device
from preflight.results import Outcome, Result

STARTING = "starting"  # the first thing a test does: importing what it needs


class GpuProcess(msgspec.Struct, frozen=True):
    """Somebody who computes on a GPU. Without a user it isn't visible from here (another container's)."""

    pid: int
    user: str = ""
    command: str = ""


class MigInstance(msgspec.Struct, frozen=True):
    """One MIG instance."""

    uuid: str
    product: str


class GpuInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as its driver tells of it. `unread` says why it can't be used; memory in bytes."""

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
    """Which GPUs are here: `on_bus` as the PCI bus or the device files show, `gpus` as the driver tells.

    `failure` says why the driver could not be asked, "" if it could; `misconfigured` that a person must put that right.
    """

    on_bus: int
    gpus: tuple[GpuInfo, ...] = ()
    driver: str = ""
    failure: str = ""
    misconfigured: bool = False


class DeviceAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """A device as it is given to its process. `visible` is what CUDA_VISIBLE_DEVICES has to be there; `threads` are the host's."""

    index: int
    name: str
    torch_name: str
    threads: int = 1
    visible: str = ""
    uuid: str = ""
    product: str = ""
    label: str = ""
    mig: bool = False


class ProcessGroupSpec(msgspec.Struct, frozen=True):
    """The process group over all devices: a new file to meet at, and after how many seconds a collective gives up by itself."""

    path: str
    ranks: int
    seconds: float


class InventoryRequest(msgspec.Struct, frozen=True, tag="look"):
    """Request: which GPUs are here? Answered by an `GpuInventory`."""


class AssignRequest(msgspec.Struct, frozen=True, tag="take"):
    """Request: this device is yours. Answered by `DeviceReady` or `DeviceRefused`."""

    seat: DeviceAssignment


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, tag="do"):
    """Request: run a test. Answered by any number of `ProgressUpdate` and `ResultMessage`, the last of which says so."""

    test: str
    level: str
    seconds: float
    fault: str = ""
    devices: tuple[Device, ...] = ()
    group: ProcessGroupSpec | None = None


Request = InventoryRequest | AssignRequest | RunRequest


class DeviceReady(msgspec.Struct, frozen=True, tag="ready"):
    """The device works; `software` are the versions its process runs."""

    device: Device
    software: dict[str, str]


class DeviceRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The device can't be used."""

    outcome: Outcome
    reason: str
    misconfigured: bool = False


class ProgressUpdate(msgspec.Struct, frozen=True, tag="now"):
    """What comes next. If nothing follows, it hangs there. `step` counts what the test announced: who is behind has the lowest."""

    doing: str
    step: int = 0


class ResultMessage(msgspec.Struct, frozen=True, tag="done"):
    """One result, or none; `last` when the test is over, `raised` if that was by an exception."""

    result: Result | None
    last: bool
    raised: bool = False


Answer = GpuInventory | DeviceReady | DeviceRefused | ProgressUpdate | ResultMessage

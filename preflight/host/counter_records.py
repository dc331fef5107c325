"""Hardware counters of a GPU as its driver reported them at one moment, and the kernel's lines about GPUs. Pure records."""

from __future__ import annotations

import msgspec


class HardwareCounter(msgspec.Struct, frozen=True, array_like=True):
    """One counter, as a JSON array. `name` is a key of `counter_changes.RULES`; `where` is a memory (`dram`, `l2_cache`, `sram`) or a link."""

    name: str
    where: str
    value: int


class HardwareCounters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All counters and error states of one GPU; None and absent counters are those that the driver does not have.

    `unsupported` names the kinds of counters that the driver cannot report. `failure` says why nothing could be read;
    `lost` and `reset_required` are the failures that the driver itself calls so.
    """

    uuid: str
    address: str = ""
    counters: tuple[HardwareCounter, ...] = ()
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    retirement_pending: bool | None = None
    recovery_action: int | None = None
    throttle_reasons: int | None = None
    unsupported: tuple[str, ...] = ()
    failure: str = ""
    lost: bool = False
    reset_required: bool = False


class KernelLogReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The driver's records in the kernel log since the last reading.

    `position` is the sequence number of the last record, None before the first. `unreadable` says why there are none.
    """

    lines: tuple[str, ...] = ()
    position: int | None = None
    unreadable: str = ""


class CounterReading(msgspec.Struct, frozen=True, kw_only=True, tag="counters"):
    """The counters of several GPUs and the kernel log at one moment. `failure` says why the driver did not answer."""

    gpus: tuple[HardwareCounters, ...] = ()
    kernel_log: KernelLogReading = KernelLogReading()
    failure: str = ""

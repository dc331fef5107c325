"""Samples: one raw reading, by one collector, at one instant. What collectors hand over and checks judge.

Times are UTC seconds. A reading that could not be had is None (unknown), never zero.
"""

from __future__ import annotations

import msgspec

from vocabulary.wire import Gpu, RankStatus


class Cursor(msgspec.Struct, frozen=True):
    """How far a kernel log has been read. `source` changes when positions start anew: a boot id, or a file's inode."""

    source: str
    position: int


class KernelRecord(msgspec.Struct, frozen=True):
    """One record of the kernel log. Facility 0 is the kernel itself; whatever a process writes has another."""

    source: str
    position: int
    at: float
    facility: int
    text: str

    @property
    def origin(self) -> str:
        """Names this record among all records of this node, for ever."""
        return f"{self.source}:{self.position}"


class KernelGap(msgspec.Struct, frozen=True):
    """Records the ring buffer overwrote before they could be read. `position` is the first one read after the gap."""

    source: str
    position: int
    at: float
    lost: int


class MemoryReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """The dear readings of one GPU: error counts and row remapping."""

    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None


class GpuReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU in one sweep. `errors` maps a call to what the driver said instead of a value."""

    index: int
    lost: bool = False
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    power_mw: int | None = None
    throttle_mask: int | None = None
    memory: MemoryReading | None = None
    errors: dict[str, str] = {}


class Inventory(msgspec.Struct, frozen=True, tag=True):
    """What NVML enumerated when it was initialised. GPUs that would not answer are counted, but not listed."""

    driver: str
    count: int
    gpus: tuple[Gpu, ...]


class Sweep(msgspec.Struct, frozen=True, tag=True):
    """One round over all GPUs."""

    at: float
    seconds: float
    readings: tuple[GpuReading, ...]


class NvmlUnavailable(msgspec.Struct, frozen=True, tag=True):
    """NVML cannot be used at all: no library, no driver, or a mismatch of the two."""

    at: float
    reason: str


class NvmlHang(msgspec.Struct, frozen=True):
    """A sweep that did not end. `index` is the GPU it hung on, None if on none in particular."""

    at: float
    index: int | None
    call: str
    seconds: float


class Beacons(msgspec.Struct, frozen=True):
    """All trainer ranks of this node, and the pages that could not be read: file name to what is wrong."""

    at: float
    ranks: tuple[RankStatus, ...]
    broken: dict[str, str]


NvmlSample = Inventory | Sweep | NvmlUnavailable | NvmlHang

"""Samples of the GPU driver: the NVML child's messages, and its silence.

The child sends plain JSON objects with these names; only the parent builds these types. Times are UTC seconds.
"""

from __future__ import annotations

import msgspec

from vocabulary.messages.wire import Gpu


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """One NVLink of a GPU. The counters count since the driver was loaded or the GPU reset."""

    link: int
    active: bool | None = None  # up, and able to carry traffic
    traffic_disabled: bool | None = None  # trained, but the driver blocks traffic
    remote: str = ""  # PCI address of the other end, if reported
    crc_errors: int | None = None  # CRC flit errors; NVLink 5: symbol errors after correction
    replay_errors: int | None = None
    recovery_errors: int | None = None
    rx_kib: int | None = None
    tx_kib: int | None = None


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process that holds a GPU."""

    pid: int
    memory_bytes: int | None = None


class GpuReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One GPU in one sweep. None: not read in this sweep, unsupported by this GPU or driver, or failed.

    `errors` maps a call to the driver's error. Volatile counters count since the driver was loaded, aggregate ones over
    the GPU's life.
    """

    index: int
    lost: bool = False
    errors: dict[str, str] = {}
    # every sweep
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    power_mw: int | None = None
    throttle_mask: int | None = None  # NVML's clock event reasons
    # every ten seconds, and after a relevant kernel line
    memory_temperature_c: int | None = None
    temperature_margin_c: int | None = None  # left until the driver slows the GPU down
    memory_clock_mhz: int | None = None
    gpu_percent: int | None = None
    memory_percent: int | None = None  # share of time in which memory was read or written
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_limit_mw: int | None = None
    performance_state: int | None = None
    ecc_corrected: int | None = None  # volatile, whole GPU
    ecc_uncorrected: int | None = None
    rows_remapped_corrected: int | None = None
    rows_remapped_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None  # field 230; 0 means none
    pcie_generation: int | None = None
    pcie_width: int | None = None
    # every minute
    energy_mj: int | None = None
    ecc_corrected_aggregate: int | None = None
    ecc_uncorrected_aggregate: int | None = None
    sram_threshold_exceeded: bool | None = None
    remap_histogram: tuple[int, ...] | None = None  # banks with max, high, partial, low, no spare rows
    retired_pages_corrected: int | None = None  # before Ampere
    retired_pages_uncorrected: int | None = None
    retirement_pending: bool | None = None
    pcie_replays: int | None = None
    throttled_power_ns: int | None = None  # time so limited since the driver was loaded
    throttled_thermal_ns: int | None = None
    throttled_sync_ns: int | None = None
    fabric_state: int | None = None  # NVML_GPU_FABRIC_STATE_*: 3 is completed
    fabric_status: int | None = None  # an nvmlReturn_t
    fabric_health_mask: int | None = None
    persistence: bool | None = None  # mode: the driver stays loaded while no process uses the GPU
    links: tuple[Link, ...] | None = None
    processes: tuple[Process, ...] | None = None
    sm_active_percent: float | None = None  # GPM: share of SMs with a warp, of tensor pipes, of DRAM cycles in use
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None


class GpuConstants(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Values that do not change while the driver is loaded; read once."""

    index: int
    part_number: str = ""
    vbios: str = ""
    inforom: str = ""
    architecture: int | None = None  # NVML_DEVICE_ARCH_*
    compute_capability: str = ""
    minor: int | None = None
    pcie_generation_max: int | None = None
    pcie_width_max: int | None = None
    sm_clock_max_mhz: int | None = None
    slowdown_c: int | None = None
    shutdown_c: int | None = None
    memory_max_c: int | None = None
    power_limit_default_mw: int | None = None
    ecc_enabled: bool | None = None
    mig_enabled: bool | None = None
    mig_devices: tuple[str, ...] = ()  # UUIDs
    persistence: bool | None = None


class Inventory(msgspec.Struct, frozen=True, tag=True):
    """What NVML enumerated when it was initialised.

    GPUs that did not answer are counted, but not listed; neither are those at the indices `left_out`, which were not
    read.
    """

    driver: str
    count: int
    gpus: tuple[Gpu, ...]
    constants: tuple[GpuConstants, ...] = ()
    nvml: str = ""
    cuda: str = ""
    left_out: tuple[int, ...] = ()


class Sweep(msgspec.Struct, frozen=True, tag=True):
    """One round over all GPUs."""

    at: float
    seconds: float
    readings: tuple[GpuReading, ...]


class XidEvent(msgspec.Struct, frozen=True, tag=True):
    """The driver's own event for an Xid: a second evidence source beside the kernel log."""

    at: float
    index: int | None
    code: int


class GpusChanged(msgspec.Struct, frozen=True, tag=True):
    """The GPUs no longer match the inventory: the child ends, and the next one enumerates again."""

    at: float
    reason: str


class NvmlUnavailable(msgspec.Struct, frozen=True, tag=True):
    """NVML cannot be used at all: no library, no driver, or a version mismatch."""

    at: float
    reason: str


class NvmlHang(msgspec.Struct, frozen=True):
    """A sweep that did not end. `index` is the GPU it hung on, None if none in particular.

    A `trial` reads only that GPU, which is left out of the sweeps; its hang says nothing about the others.
    """

    at: float
    index: int | None
    call: str
    seconds: float
    injected: bool = False
    trial: bool = False


NvmlSample = Inventory | Sweep | XidEvent | NvmlUnavailable | NvmlHang

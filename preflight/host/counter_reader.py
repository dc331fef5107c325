"""Reads the hardware counters of GPUs through their driver. Every call may hang: only a process with a time limit reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from preflight.check_context import Note
from preflight.host.counter_records import CounterReading, HardwareCounter, HardwareCounters
from preflight.host.kernel_xids import KernelXidReader
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError, list_unsupported_codes, read_field_value

VALUE_MAX = 1 << 63  # drivers report all ones for an unknown value, and signed types may be negative
UNKNOWN_32 = (1 << 32) - 1  # all ones, from calls with 32 bits
CORRECTED, UNCORRECTED, VOLATILE = 0, 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
ECC_LOCATIONS = (  # nvmlMemoryLocation_t, in its order
    "l1_cache",
    "l2_cache",
    "dram",
    "register_file",
    "texture_memory",
    "shared_memory",
    "cbu",
    "sram",
)
# Names of NVML's field values; the first one that the driver answers counts.
GPU_FIELDS = {
    "retired_single_bit": ("NVML_FI_DEV_RETIRED_SBE",),
    "retired_double_bit": ("NVML_FI_DEV_RETIRED_DBE",),
    "retirement_pending": ("NVML_FI_DEV_RETIRED_PENDING",),
    "pcie_replays": ("NVML_FI_DEV_PCIE_REPLAY_COUNTER",),
    "recovery_action": ("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION",),
    "hw_thermal_slowdown_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",),
    "hw_power_brake_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",),
    "sw_thermal_slowdown_ns": ("NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",),
}
LINK_FIELDS = {  # NVLink 5 uses other counters than its predecessors
    "nvlink_crc": ("NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS", "NVML_FI_DEV_NVLINK_ERROR_DL_CRC"),
    "nvlink_effective_errors": ("NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",),
    "nvlink_replays": ("NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY",),
    "nvlink_recoveries": ("NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS", "NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY"),
}
STATE_FIELDS = ("retirement_pending", "recovery_action")
Field = tuple[str, str, int, int]  # counter, location, field number, scope


class HardwareCounterReader:
    """The driver and the kernel log, opened once. It remembers what each GPU does not support, and no longer asks."""

    def __init__(self, note: Note) -> None:
        """Open nothing yet. `note` is called before every query that may hang."""
        self._note = note
        self._driver: NvmlDriver | None = None
        self._gpus: dict[str, _GpuCounterReader] = {}
        self._kernel_log = KernelXidReader()

    def read(self, uuids: Sequence[str], since: int | None) -> CounterReading:
        """The counters of these GPUs, and the kernel's lines since record number `since`."""
        log = self._kernel_log.read(since)
        try:
            if self._driver is None:
                self._driver = NvmlDriver(lambda doing: self._note(f"hardware counters: {doing}"))
        except NoDriverError as error:
            return CounterReading(kernel_log=log, failure=error.reason)
        gpus = tuple(self._read_gpu(self._driver, uuid) for uuid in uuids)
        return CounterReading(gpus=gpus, kernel_log=log)

    def _read_gpu(self, driver: NvmlDriver, uuid: str) -> HardwareCounters:
        if uuid not in self._gpus:
            self._note(f"hardware counters of {uuid}: handle")
            try:
                handle = driver.library.nvmlDeviceGetHandleByUUID(uuid)  # touches no other GPU, which may hang
            except driver.library.NVMLError as error:
                return _build_unread(driver.library, uuid, "", error)
            self._gpus[uuid] = _GpuCounterReader(driver, handle, uuid, self._note)
        return self._gpus[uuid].read()


def _build_unread(library: Any, uuid: str, address: str, error: Exception) -> HardwareCounters:
    code = getattr(error, "value", None)
    return HardwareCounters(
        uuid=uuid,
        address=address,
        failure=str(error),
        lost=code in (library.NVML_ERROR_GPU_IS_LOST, library.NVML_ERROR_NOT_FOUND),  # not found: it was listed before
        reset_required=code == library.NVML_ERROR_RESET_REQUIRED,
    )


class _GpuCounterReader:
    def __init__(self, driver: NvmlDriver, handle: Any, uuid: str, note: Note) -> None:
        self._library, self._handle, self._uuid, self._note = driver.library, handle, uuid, note
        self._address = driver.address(handle)
        self._absent: set[tuple[Any, ...]] = set()
        self._fields: list[Field] = _list_fields(driver.library)
        self._unknown = list_unsupported_codes(driver.library)

    def read(self) -> HardwareCounters:
        try:
            return self._read()
        except self._library.NVMLError as error:
            return _build_unread(self._library, self._uuid, self._address, error)

    def _read(self) -> HardwareCounters:
        counters = self._read_ecc()
        rows = self._ask("row remaps", "DeviceGetRemappedRows") or (None, None, None, None)
        counters += _build_counters("remapped_correctable", "", rows[0])
        counters += _build_counters("remapped_uncorrectable", "", rows[1])
        fields, states = self._read_fields()
        if not any(counter.name == "pcie_replays" for counter in fields):
            fields += _build_counters("pcie_replays", "", self._ask("PCIe replays", "DeviceGetPcieReplayCounter"))
        counters += fields
        pending = states.get("retirement_pending")
        reasons = self._ask("clocks event reasons", "DeviceGetCurrentClocksEventReasons")
        if reasons is None:  # the name before driver 535
            reasons = self._ask("clocks throttle reasons", "DeviceGetCurrentClocksThrottleReasons")
        return HardwareCounters(
            uuid=self._uuid,
            address=self._address,
            counters=tuple(counters),
            remap_pending=None if rows[2] is None else bool(rows[2]),
            remap_failed=None if rows[3] is None else bool(rows[3]),
            retirement_pending=None if pending is None else bool(pending),
            recovery_action=states.get("recovery_action"),
            throttle_reasons=clean_count(reasons),
            unsupported=_list_unsupported(counters),
        )

    def _read_ecc(self) -> list[HardwareCounter]:
        found: list[HardwareCounter] = []
        self._note(f"hardware counters of {self._uuid}: ECC errors")
        for kind, name in ((CORRECTED, "ecc_corrected"), (UNCORRECTED, "ecc_uncorrected")):
            of_kind: list[HardwareCounter] = []
            for number, where in enumerate(ECC_LOCATIONS):
                value = self._ask("", "DeviceGetMemoryErrorCounter", kind, VOLATILE, number)
                of_kind += _build_counters(name, where, value)
            if not of_kind:  # a driver that does not say where
                value = self._ask("", "DeviceGetTotalEccErrors", kind, VOLATILE)
                of_kind += _build_counters(name, "all memories", value)
            found += of_kind
        return found

    def _read_fields(self) -> tuple[list[HardwareCounter], dict[str, int]]:
        if not self._fields:
            return [], {}
        self._note(f"hardware counters of {self._uuid}: field values")
        asked = [(number, scope) for _, _, number, scope in self._fields]
        try:
            values = self._library.nvmlDeviceGetFieldValues(self._handle, asked)
        except self._library.NVMLError as error:
            if getattr(error, "value", None) not in self._unknown:
                raise
            self._fields = []
            return [], {}
        counters: list[HardwareCounter] = []
        states: dict[str, int] = {}
        seen: set[tuple[str, str]] = set()
        kept: list[Field] = []
        for field, value in zip(self._fields, values, strict=True):
            name, where = field[:2]
            if value.nvmlReturn in self._unknown or (name, where) in seen:
                continue
            kept.append(field)
            if (
                value.nvmlReturn != self._library.NVML_SUCCESS
                or (number := clean_count(read_field_value(self._library, value))) is None
            ):
                continue
            seen.add((name, where))
            if name in STATE_FIELDS:
                states[name] = number
            else:
                counters.append(HardwareCounter(name, where, number))
        self._fields = kept
        return counters, states

    def _ask(self, what: str, name: str, *arguments: Any) -> Any:
        """The answer; None if this driver or GPU does not have it. Without `what`, the caller has announced the query."""
        call: Callable[..., Any] | None = getattr(self._library, f"nvml{name}", None)
        key = (name, *arguments)
        if call is None or key in self._absent:
            return None
        if what:
            self._note(f"hardware counters of {self._uuid}: {what}")
        try:
            return call(self._handle, *arguments)
        except self._library.NVMLError as error:
            if getattr(error, "value", None) not in self._unknown:
                raise
            self._absent.add(key)
            return None


def _list_fields(library: Any) -> list[Field]:
    """Every field that this release of NVML's header names; links beyond the last one are dropped when they do not answer."""
    fields = [
        (counter, "", number, 0)
        for counter, names in GPU_FIELDS.items()
        for name in names
        if (number := getattr(library, name, None)) is not None
    ]
    fields += [
        (counter, f"NVLink {link}", number, link)
        for link in range(int(getattr(library, "NVML_NVLINK_MAX_LINKS", 18)))
        for counter, names in LINK_FIELDS.items()
        for name in names
        if (number := getattr(library, name, None)) is not None
    ]
    return fields


def clean_count(value: object) -> int | None:
    """A counter's value; None for what cannot be a count: negative, all ones, no integer."""
    if not isinstance(value, int) or not 0 <= value < VALUE_MAX or value == UNKNOWN_32:
        return None
    return value


def _build_counters(name: str, where: str, value: object) -> list[HardwareCounter]:
    count = clean_count(value)
    return [] if count is None else [HardwareCounter(name, where, count)]


def _list_unsupported(counters: Iterable[HardwareCounter]) -> tuple[str, ...]:
    """The kinds of which the driver reports nothing; a GPU without NVLinks is no such case."""
    names = {counter.name for counter in counters}
    kinds = {
        "ECC errors": {"ecc_corrected", "ecc_uncorrected"},
        "remapped rows or retired pages": {"remapped_uncorrectable", "retired_double_bit"},
        "PCIe replays": {"pcie_replays"},
    }
    return tuple(kind for kind, members in kinds.items() if not names & members)

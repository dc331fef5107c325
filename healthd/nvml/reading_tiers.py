"""What to read how often. A sweep costs the sum over all GPUs; a call takes anything from 2 µs to 21 ms.

Measured on one H200: temperature 2 µs, ECC 135 µs, PCIe replays 150 µs, one violation counter 0.6 to 2.3 ms, energy 2.8
ms, forty field values in one call 6.7 ms. PCIe throughput takes 21 ms, because the driver watches the bus for that
long: it is never read. Each GPU has its own tables, because readings remember what that GPU does not have.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any

import pynvml

from healthd.nvml.field_values import FieldValues
from healthd.nvml.gpu_processes import make_process_query
from healthd.nvml.gpu_reading import Ask, NvmlReading, make_fallback_query
from healthd.nvml.nvlink_counters import NvLinks

OFTEN_S = 10.0
RARELY_S = 60.0
_ACTIVITY_METRICS = {
    "sm_active_percent": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "tensor_active_percent": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_percent": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


def list_sweep_readings() -> list[NvmlReading]:
    """Return the readings of every sweep, microseconds each: they show a lost, throttled or idle GPU within a second."""
    throttle_mask = make_fallback_query(  # drivers before 535 use its older name
        pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )
    return [
        NvmlReading(
            "temperature_c", lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
        ),
        NvmlReading("sm_clock_mhz", _make_clock_query(pynvml.NVML_CLOCK_SM)),
        NvmlReading("power_mw", pynvml.nvmlDeviceGetPowerUsage),
        NvmlReading("throttle_mask", throttle_mask),
    ]


def list_frequent_readings() -> list[NvmlReading]:
    """Return fault counters and fast values, about 100 times as expensive; also read after a kernel line."""
    fields = FieldValues(
        {
            "memory_temperature_c": (pynvml.NVML_FI_DEV_MEMORY_TEMP,),
            "recovery_action": (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,),
        }
    )
    return [
        *list_ecc_readings(pynvml.NVML_VOLATILE_ECC),
        NvmlReading("remapped_rows", read_remapped_rows),
        NvmlReading("recovery_action", fields),
        NvmlReading("temperature_margin_c", pynvml.nvmlDeviceGetMarginTemperature),
        NvmlReading("memory_clock_mhz", _make_clock_query(pynvml.NVML_CLOCK_MEM)),
        NvmlReading("utilisation", _read_utilization),
        NvmlReading("memory", make_memory_usage_query()),
        NvmlReading("power_limit_mw", pynvml.nvmlDeviceGetEnforcedPowerLimit),
        NvmlReading("performance_state", _read_performance_state),
        NvmlReading("pcie_generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        NvmlReading("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    ]


def list_rare_fault_readings() -> list[NvmlReading]:
    """Return fault readings that take milliseconds; read once more at the end of the readings after a kernel line."""
    return [
        *list_retired_page_readings(),
        NvmlReading("sram_threshold_exceeded", read_sram_threshold_flag),
        NvmlReading("remap_histogram", read_remap_histogram),
        NvmlReading("fabric", make_fabric_query()),
        NvmlReading("links", NvLinks()),
    ]


def list_rare_readings() -> list[NvmlReading]:
    """Return readings that take milliseconds and matter only as a trend over minutes or days."""
    counters = FieldValues(
        {
            "energy_mj": (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,),
            "pcie_replays": (pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,),
            "throttled_power_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_POWER,),
            "throttled_thermal_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL,),
            "throttled_sync_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,),
        }
    )
    return [
        *list_ecc_readings(pynvml.NVML_AGGREGATE_ECC, "_aggregate"),
        NvmlReading("counters", counters),
        *counters.or_else(
            {
                "energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption,
                "pcie_replays": pynvml.nvmlDeviceGetPcieReplayCounter,
                "throttled_power_ns": _make_violation_query(pynvml.NVML_PERF_POLICY_POWER),
                "throttled_thermal_ns": _make_violation_query(pynvml.NVML_PERF_POLICY_THERMAL),
                "throttled_sync_ns": _make_violation_query(pynvml.NVML_PERF_POLICY_SYNC_BOOST),
            }
        ),
        NvmlReading("persistence", lambda handle: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        NvmlReading("processes", make_process_query()),
        NvmlReading("activity", GpuActivity()),
    ]


def _make_clock_query(kind: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, kind)


def _make_violation_query(policy: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime


def _read_utilization(handle: Any) -> dict[str, int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return {"gpu_percent": rates.gpu, "memory_percent": rates.memory}


def _read_performance_state(handle: Any) -> int | None:
    state: int = pynvml.nvmlDeviceGetPerformanceState(handle)
    return None if state == pynvml.NVML_PSTATE_UNKNOWN else state


def make_fabric_query() -> Ask:
    """Return a query for `fabric_state`, `fabric_status` and, from driver 550 on, `fabric_health_mask`."""
    return make_fallback_query(_read_state_and_health, _read_state)


def _read_state_and_health(handle: Any) -> dict[str, int]:
    info = pynvml.c_nvmlGpuFabricInfoV_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return _encode_state(info) | {"fabric_health_mask": info.healthMask}


def _read_state(handle: Any) -> dict[str, int]:
    info = pynvml.c_nvmlGpuFabricInfo_t()
    pynvml.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
    return _encode_state(info)


def _encode_state(info: Any) -> dict[str, int]:
    if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return {"fabric_state": info.state, "fabric_status": info.status}


class GpuActivity:
    """Alternates two samples: each call returns the mean since the last one, so the first call returns nothing."""

    def __init__(self) -> None:
        self._before: Any = None
        self._now: Any = None

    def __call__(self, handle: Any) -> dict[str, float]:
        """Return percentages by name.

        Raises:
            NVMLError: this GPU has no such metrics (not supported), or does not answer.
        """
        if self._now is None:
            if not pynvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            self._now = pynvml.nvmlGpmSampleAlloc()
        pynvml.nvmlGpmSampleGet(handle, self._now)
        before, now = self._before, self._now
        self._before, self._now = now, pynvml.nvmlGpmSampleAlloc() if before is None else before
        return {} if before is None else _compute_metrics(before, now)


def _compute_metrics(before: Any, now: Any) -> dict[str, float]:
    request = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(_ACTIVITY_METRICS)
    request.sample1, request.sample2 = before, now
    for metric, number in zip(request.metrics, _ACTIVITY_METRICS.values(), strict=False):
        metric.metricId = number
    pynvml.nvmlGpmMetricsGet(request)
    return {
        name: metric.value
        for name, metric in zip(_ACTIVITY_METRICS, request.metrics, strict=False)
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value)
    }


def list_ecc_readings(counter: int, suffix: str = "") -> list[NvmlReading]:
    """Return the readings for ECC errors of the whole GPU, one call each."""
    kinds = {
        "ecc_corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
        "ecc_uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    }
    return [NvmlReading(name + suffix, _make_ecc_query(kind, counter)) for name, kind in kinds.items()]


def make_memory_usage_query() -> Ask:
    """Return a query for memory in use; version 2 excludes what the driver reserves."""
    info = make_fallback_query(
        lambda handle: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2),
        pynvml.nvmlDeviceGetMemoryInfo,
    )

    def ask(handle: Any) -> dict[str, int]:
        memory = info(handle)
        return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}

    return ask


def read_remapped_rows(handle: Any) -> dict[str, Any]:
    """Return remapped rows (Ampere and later), and whether a reset is needed or no spares are left."""
    corrected, uncorrected, pending, failed = pynvml.nvmlDeviceGetRemappedRows(handle)
    return {
        "rows_remapped_corrected": corrected,
        "rows_remapped_uncorrected": uncorrected,
        "remap_pending": bool(pending),
        "remap_failed": bool(failed),
    }


def read_remap_histogram(handle: Any) -> list[int]:
    """Return the number of banks with all, many, some, few and no spare rows left."""
    banks = pynvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return [banks.max, banks.high, banks.partial, banks.low, banks.none]


def read_sram_threshold_flag(handle: Any) -> bool:
    """Return whether on-chip memories had more uncorrectable errors than the vendor tolerates."""
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return bool(status.bThresholdExceeded)


def list_retired_page_readings() -> list[NvmlReading]:
    """Return the readings for retired pages by cause, and pages pending the next reset (before Ampere)."""
    fields = FieldValues(
        {
            "retired_pages_corrected": (pynvml.NVML_FI_DEV_RETIRED_SBE,),
            "retired_pages_uncorrected": (pynvml.NVML_FI_DEV_RETIRED_DBE,),
            "retirement_pending": (pynvml.NVML_FI_DEV_RETIRED_PENDING,),
        }
    )

    def ask(handle: Any) -> dict[str, Any]:
        answer = fields(handle)
        pending = answer.pop("retirement_pending", None)
        return answer if pending is None else answer | {"retirement_pending": bool(pending)}

    by_corrected = pynvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
    by_uncorrected = pynvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR
    older: dict[str, Ask] = {
        "retired_pages_corrected": lambda handle: len(pynvml.nvmlDeviceGetRetiredPages(handle, by_corrected)),
        "retired_pages_uncorrected": lambda handle: len(pynvml.nvmlDeviceGetRetiredPages(handle, by_uncorrected)),
        "retirement_pending": lambda handle: bool(pynvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
    }
    return [NvmlReading("retired_pages", ask), *fields.or_else(older)]


def _make_ecc_query(kind: int, counter: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter)

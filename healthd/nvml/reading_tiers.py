"""What to read how often. A sweep costs the sum over all GPUs; a call takes anything from 2 µs to 21 ms.

Measured on one H200: temperature 2 µs, ECC 135 µs, PCIe replays 150 µs, one violation counter 0.6 to 2.3 ms, energy 2.8
ms, forty field values in one call 6.7 ms. PCIe throughput takes 21 ms, because the driver watches the bus for that
long: it is never read. Each GPU has its own tables, because readings remember what that GPU does not have.
"""

from __future__ import annotations

from typing import Any

import pynvml

from healthd.nvml import gpu_memory
from healthd.nvml.field_values import FieldValues
from healthd.nvml.gpu_activity import GpuActivity
from healthd.nvml.gpu_processes import make_process_query
from healthd.nvml.gpu_reading import Ask, NvmlReading, make_fallback_query
from healthd.nvml.nvlink_counters import NvLinks
from healthd.nvml.nvlink_fabric import make_fabric_query

OFTEN_S = 10.0
RARELY_S = 60.0


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
        *gpu_memory.list_ecc_readings(pynvml.NVML_VOLATILE_ECC),
        NvmlReading("remapped_rows", gpu_memory.read_remapped_rows),
        NvmlReading("recovery_action", fields),
        NvmlReading("temperature_margin_c", pynvml.nvmlDeviceGetMarginTemperature),
        NvmlReading("memory_clock_mhz", _make_clock_query(pynvml.NVML_CLOCK_MEM)),
        NvmlReading("utilisation", _read_utilization),
        NvmlReading("memory", gpu_memory.make_memory_usage_query()),
        NvmlReading("power_limit_mw", pynvml.nvmlDeviceGetEnforcedPowerLimit),
        NvmlReading("performance_state", _read_performance_state),
        NvmlReading("pcie_generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        NvmlReading("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    ]


def list_rare_fault_readings() -> list[NvmlReading]:
    """Return fault readings that take milliseconds; read once more at the end of the readings after a kernel line."""
    return [
        *gpu_memory.list_retired_page_readings(),
        NvmlReading("sram_threshold_exceeded", gpu_memory.read_sram_threshold_flag),
        NvmlReading("remap_histogram", gpu_memory.read_remap_histogram),
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
        *gpu_memory.list_ecc_readings(pynvml.NVML_AGGREGATE_ECC, "_aggregate"),
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

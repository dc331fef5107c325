"""What to read how often. A sweep costs all GPUs together; a call costs anything from 2 µs to 21 ms.

Measured on one H200: temperature 2 µs, ECC 135 µs, PCIe replays 150 µs, one violation counter 0.6 to 2.3 ms, energy
2.8 ms, forty field values in one call 6.7 ms. PCIe throughput takes 21 ms, because the driver watches the bus for so
long: it is never read. Tables are made for each GPU, because readings remember what that GPU does not have.
"""

from __future__ import annotations

from typing import Any

import pynvml

from healthd.nvml import memory
from healthd.nvml.activity import Activity
from healthd.nvml.fabric import fabric
from healthd.nvml.fields import Fields
from healthd.nvml.holders import processes
from healthd.nvml.links import Links
from healthd.nvml.reading import Ask, Reading, first_that_works

OFTEN_S = 10.0
RARELY_S = 60.0


def every_sweep() -> list[Reading]:
    """What tells within a second that a GPU is gone, throttled or idle: microseconds each."""
    throttle_mask = first_that_works(  # drivers before 535 know it by its older name
        pynvml.nvmlDeviceGetCurrentClocksEventReasons, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons
    )
    return [
        Reading("temperature_c", lambda handle: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        Reading("sm_clock_mhz", _clock(pynvml.NVML_CLOCK_SM)),
        Reading("power_mw", pynvml.nvmlDeviceGetPowerUsage),
        Reading("throttle_mask", throttle_mask),
    ]


def often() -> list[Reading]:
    """What judges a fault, or moves in seconds: a hundred times as dear. Also read when the kernel log tells of one."""
    fields = Fields(
        {
            "memory_temperature_c": (pynvml.NVML_FI_DEV_MEMORY_TEMP,),
            "recovery_action": (pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,),
        }
    )
    return [
        *memory.ecc(pynvml.NVML_VOLATILE_ECC),
        Reading("remapped_rows", memory.remapped_rows),
        Reading("recovery_action", fields),
        Reading("temperature_margin_c", pynvml.nvmlDeviceGetMarginTemperature),
        Reading("memory_clock_mhz", _clock(pynvml.NVML_CLOCK_MEM)),
        Reading("utilisation", _utilisation),
        Reading("memory", memory.usage()),
        Reading("power_limit_mw", pynvml.nvmlDeviceGetEnforcedPowerLimit),
        Reading("performance_state", _performance_state),
        Reading("pcie_generation", pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
        Reading("pcie_width", pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    ]


def rarely_grave() -> list[Reading]:
    """Milliseconds, but they show faults: read once more in the last look after a kernel line."""
    return [
        *memory.retired_pages(),
        Reading("sram_threshold_exceeded", memory.sram_threshold_exceeded),
        Reading("remap_histogram", memory.remap_histogram),
        Reading("fabric", fabric()),
        Reading("links", Links()),
    ]


def rarely() -> list[Reading]:
    """Milliseconds too, and only their course over minutes or days says anything."""
    counters = Fields(
        {
            "energy_mj": (pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,),
            "pcie_replays": (pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER,),
            "throttled_power_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_POWER,),
            "throttled_thermal_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL,),
            "throttled_sync_ns": (pynvml.NVML_FI_DEV_PERF_POLICY_SYNC_BOOST,),
        }
    )
    return [
        *memory.ecc(pynvml.NVML_AGGREGATE_ECC, "_aggregate"),
        Reading("counters", counters),
        *counters.or_else(
            {
                "energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption,
                "pcie_replays": pynvml.nvmlDeviceGetPcieReplayCounter,
                "throttled_power_ns": _violation(pynvml.NVML_PERF_POLICY_POWER),
                "throttled_thermal_ns": _violation(pynvml.NVML_PERF_POLICY_THERMAL),
                "throttled_sync_ns": _violation(pynvml.NVML_PERF_POLICY_SYNC_BOOST),
            }
        ),
        Reading("persistence", lambda handle: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        Reading("processes", processes()),
        Reading("activity", Activity()),
    ]


def _clock(kind: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetClockInfo(handle, kind)


def _violation(policy: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime


def _utilisation(handle: Any) -> dict[str, int]:
    rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
    return {"gpu_percent": rates.gpu, "memory_percent": rates.memory}


def _performance_state(handle: Any) -> int | None:
    state: int = pynvml.nvmlDeviceGetPerformanceState(handle)
    return None if state == pynvml.NVML_PSTATE_UNKNOWN else state

"""Which of a GPU's values are exported, and how. Adding a value is adding a line."""

from __future__ import annotations

from healthd.samples.metric_declaration import Metric

_CORRECTED, _UNCORRECTED = (("kind", "corrected"),), (("kind", "uncorrected"),)
_VOLATILE, _AGGREGATE = (("scope", "volatile"),), (("scope", "aggregate"),)
_MIB = 1 << 20

# Read in every sweep: these disappear at once for a GPU that did not answer in the last one.
FRESH = (
    Metric("healthd_gpu_temperature_celsius", "Core temperature.", "temperature_c"),
    Metric("healthd_gpu_sm_clock_hertz", "Streaming multiprocessor clock.", "sm_clock_mhz", factor=1e6),
    Metric("healthd_gpu_power_watts", "Power drawn.", "power_mw", factor=1e-3),
)

# Read less often: the last known values.
KNOWN = (
    Metric("healthd_gpu_memory_temperature_celsius", "Memory temperature.", "memory_temperature_c"),
    Metric(
        "healthd_gpu_slowdown_margin_celsius", "Margin until the driver slows the GPU down.", "temperature_margin_c"
    ),
    Metric("healthd_gpu_memory_clock_hertz", "Memory clock.", "memory_clock_mhz", factor=1e6),
    Metric("healthd_gpu_utilization_ratio", "Share of time in which a kernel ran.", "gpu_percent", factor=0.01),
    Metric(
        "healthd_gpu_memory_utilization_ratio",
        "Share of time in which memory was read or written.",
        "memory_percent",
        factor=0.01,
    ),
    Metric("healthd_gpu_memory_used_bytes", "Memory in use.", "memory_used_bytes"),
    Metric("healthd_gpu_memory_size_bytes", "Total memory.", "memory_total_bytes"),
    Metric("healthd_gpu_power_limit_watts", "Power the GPU may draw.", "power_limit_mw", factor=1e-3),
    Metric("healthd_gpu_performance_state", "0 (fastest) to 15.", "performance_state"),
    Metric("healthd_gpu_energy_joules_total", "Energy used since the driver was loaded.", "energy_mj", "counter", 1e-3),
    Metric(
        "healthd_gpu_ecc_errors_total",
        "ECC errors: volatile since the driver was loaded, aggregate over the GPU's life.",
        "ecc_corrected",
        "counter",
        labels=_CORRECTED + _VOLATILE,
    ),
    Metric("healthd_gpu_ecc_errors_total", "", "ecc_uncorrected", "counter", labels=_UNCORRECTED + _VOLATILE),
    Metric("healthd_gpu_ecc_errors_total", "", "ecc_corrected_aggregate", "counter", labels=_CORRECTED + _AGGREGATE),
    Metric(
        "healthd_gpu_ecc_errors_total", "", "ecc_uncorrected_aggregate", "counter", labels=_UNCORRECTED + _AGGREGATE
    ),
    Metric("healthd_gpu_sram_threshold_exceeded", "1 if SRAM had more errors than allowed.", "sram_threshold_exceeded"),
    Metric(
        "healthd_gpu_remapped_rows", "Memory rows remapped to spares.", "rows_remapped_corrected", labels=_CORRECTED
    ),
    Metric("healthd_gpu_remapped_rows", "", "rows_remapped_uncorrected", labels=_UNCORRECTED),
    Metric("healthd_gpu_row_remap_pending", "1 if a reset is due to replace a row.", "remap_pending"),
    Metric("healthd_gpu_row_remap_failed", "1 if a row could not be replaced.", "remap_failed"),
    Metric(
        "healthd_gpu_retired_pages",
        "Memory pages no longer used (before Ampere).",
        "retired_pages_corrected",
        labels=_CORRECTED,
    ),
    Metric("healthd_gpu_retired_pages", "", "retired_pages_uncorrected", labels=_UNCORRECTED),
    Metric("healthd_gpu_retirement_pending", "1 if a restart is due to retire a page.", "retirement_pending"),
    Metric("healthd_gpu_recovery_action", "Recovery that the driver requests; 0 is none.", "recovery_action"),
    Metric("healthd_gpu_pcie_generation", "PCIe generation of the link now.", "pcie_generation"),
    Metric("healthd_gpu_pcie_width_lanes", "PCIe lanes in use.", "pcie_width"),
    Metric("healthd_gpu_pcie_replays_total", "PCIe packets retransmitted.", "pcie_replays", "counter"),
    Metric(
        "healthd_gpu_throttled_seconds_total",
        "Time with a lowered clock since the driver was loaded, by reason.",
        "throttled_power_ns",
        "counter",
        1e-9,
        (("reason", "power"),),
    ),
    Metric(
        "healthd_gpu_throttled_seconds_total",
        "",
        "throttled_thermal_ns",
        "counter",
        1e-9,
        (("reason", "thermal"),),
    ),
    Metric(
        "healthd_gpu_throttled_seconds_total", "", "throttled_sync_ns", "counter", 1e-9, (("reason", "sync_boost"),)
    ),
    Metric("healthd_gpu_fabric_state", "NVLink fabric registration; 3 is completed.", "fabric_state"),
    Metric(
        "healthd_gpu_fabric_status", "Result of the registration, an NVML return code; 0 is success.", "fabric_status"
    ),
    Metric("healthd_gpu_sm_active_ratio", "Share of multiprocessors with a warp.", "sm_active_percent", factor=0.01),
    Metric("healthd_gpu_tensor_active_ratio", "Share of tensor cycles in use.", "tensor_active_percent", factor=0.01),
    Metric("healthd_gpu_dram_active_ratio", "Share of memory cycles in use.", "dram_active_percent", factor=0.01),
)

CONSTANT = (
    Metric("healthd_gpu_sm_clock_max_hertz", "Highest clock of this product.", "sm_clock_max_mhz", factor=1e6),
    Metric("healthd_gpu_pcie_generation_max", "PCIe generation this GPU supports.", "pcie_generation_max"),
    Metric("healthd_gpu_pcie_width_max_lanes", "PCIe lanes this GPU supports.", "pcie_width_max"),
    Metric("healthd_gpu_slowdown_celsius", "Temperature at which the driver slows down.", "slowdown_c"),
    Metric("healthd_gpu_ecc_enabled", "1 if ECC is on.", "ecc_enabled"),
    Metric("healthd_gpu_mig_enabled", "1 if the GPU is in MIG mode.", "mig_enabled"),
)

# Under dcgm-exporter's names (its default-counters.csv), for existing dashboards.
DCGM = (
    Metric("DCGM_FI_DEV_SM_CLOCK", "SM clock (MHz).", "sm_clock_mhz"),
    Metric("DCGM_FI_DEV_MEM_CLOCK", "Memory clock (MHz).", "memory_clock_mhz"),
    Metric("DCGM_FI_DEV_GPU_TEMP", "Core temperature (C).", "temperature_c"),
    Metric("DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (C).", "memory_temperature_c"),
    Metric("DCGM_FI_DEV_POWER_USAGE", "Power drawn (W).", "power_mw", factor=1e-3),
    Metric("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy used (mJ).", "energy_mj", "counter"),
    Metric("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe packets retransmitted.", "pcie_replays", "counter"),
    Metric("DCGM_FI_DEV_GPU_UTIL", "Share of time in which a kernel ran (%).", "gpu_percent"),
    Metric("DCGM_FI_DEV_MEM_COPY_UTIL", "Share of time in which memory was in use (%).", "memory_percent"),
    Metric("DCGM_FI_DEV_FB_USED", "Memory in use (MiB).", "memory_used_bytes", factor=1 / _MIB),
    Metric("DCGM_FI_DEV_FB_TOTAL", "Total memory (MiB).", "memory_total_bytes", factor=1 / _MIB),
    Metric("DCGM_FI_DEV_POWER_VIOLATION", "Time limited by power (us).", "throttled_power_ns", "counter", 1e-3),
    Metric("DCGM_FI_DEV_THERMAL_VIOLATION", "Time limited by heat (us).", "throttled_thermal_ns", "counter", 1e-3),
    Metric("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Corrected ECC errors, volatile.", "ecc_corrected", "counter"),
    Metric("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Uncorrected ECC errors, volatile.", "ecc_uncorrected", "counter"),
    Metric("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "Corrected ECC errors, aggregate.", "ecc_corrected_aggregate", "counter"),
    Metric(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "Uncorrected ECC errors, aggregate.", "ecc_uncorrected_aggregate", "counter"
    ),
    Metric("DCGM_FI_DEV_RETIRED_SBE", "Pages retired for corrected errors.", "retired_pages_corrected", "counter"),
    Metric("DCGM_FI_DEV_RETIRED_DBE", "Pages retired for uncorrected errors.", "retired_pages_uncorrected", "counter"),
    Metric("DCGM_FI_DEV_RETIRED_PENDING", "Pages to be retired.", "retirement_pending", "counter"),
    Metric(
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        "Rows replaced for corrected errors.",
        "rows_remapped_corrected",
        "counter",
    ),
    Metric(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Rows replaced for uncorrected errors.",
        "rows_remapped_uncorrected",
        "counter",
    ),
    Metric("DCGM_FI_DEV_ROW_REMAP_FAILURE", "1 if a row could not be replaced.", "remap_failed"),
    Metric("DCGM_FI_DEV_ROW_REMAP_PENDING", "1 if a reset is due to replace a row.", "remap_pending"),
    Metric("DCGM_FI_PROF_SM_ACTIVE", "Share of multiprocessors with a warp.", "sm_active_percent", factor=0.01),
    Metric("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Share of tensor cycles in use.", "tensor_active_percent", factor=0.01),
    Metric("DCGM_FI_PROF_DRAM_ACTIVE", "Share of memory cycles in use.", "dram_active_percent", factor=0.01),
)

"""GPU memory: usage, errors, and remaining spares."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from healthd.nvml.field_values import FieldValues
from healthd.nvml.gpu_reading import Ask, NvmlReading, make_fallback_query


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

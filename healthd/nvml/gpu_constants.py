"""Values that do not change while the driver is loaded: read once, before the first sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from healthd.nvml.gpu_processes import read_mig_state
from healthd.nvml.gpu_reading import Ask, NvmlReading


def list_constant_readings() -> list[NvmlReading]:
    """Return the readings for `GpuConstants`."""
    return [
        NvmlReading("part_number", pynvml.nvmlDeviceGetBoardPartNumber),
        NvmlReading("vbios", pynvml.nvmlDeviceGetVbiosVersion),
        NvmlReading("inforom", pynvml.nvmlDeviceGetInforomImageVersion),
        NvmlReading("architecture", _read_architecture),
        NvmlReading("compute_capability", _read_compute_capability),
        NvmlReading("minor", pynvml.nvmlDeviceGetMinorNumber),
        NvmlReading("pcie_generation_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        NvmlReading("pcie_width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        NvmlReading("sm_clock_max_mhz", lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        NvmlReading("slowdown_c", _make_threshold_query(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)),
        NvmlReading("shutdown_c", _make_threshold_query(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)),
        NvmlReading("memory_max_c", _make_threshold_query(pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)),
        NvmlReading("power_limit_default_mw", pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        NvmlReading("ecc_enabled", lambda handle: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        NvmlReading("persistence", lambda handle: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        NvmlReading("mig", read_mig_state),
    ]


def read_driver_versions() -> dict[str, str]:
    """Of the driver, its library, and the newest CUDA it can run; the latter two where they are known.

    Raises:
        NVMLError: the driver does not report its version.
    """
    cuda = _call_or_none(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "nvml": _call_or_none(pynvml.nvmlSystemGetNVMLVersion) or "",
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    }


def _call_or_none(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except pynvml.NVMLError:
        return None


def _read_architecture(handle: Any) -> int | None:
    number: int = pynvml.nvmlDeviceGetArchitecture(handle)
    return None if number == pynvml.NVML_DEVICE_ARCH_UNKNOWN else number


def _read_compute_capability(handle: Any) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _make_threshold_query(kind: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetTemperatureThreshold(handle, kind)

"""What does not change while the driver is loaded: asked once, before the first sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from healthd.nvml.holders import mig
from healthd.nvml.reading import Ask, Reading


def constants() -> list[Reading]:
    """The fields of `GpuConstants`."""
    return [
        Reading("part_number", pynvml.nvmlDeviceGetBoardPartNumber),
        Reading("vbios", pynvml.nvmlDeviceGetVbiosVersion),
        Reading("inforom", pynvml.nvmlDeviceGetInforomImageVersion),
        Reading("architecture", _architecture),
        Reading("compute_capability", _compute_capability),
        Reading("minor", pynvml.nvmlDeviceGetMinorNumber),
        Reading("pcie_generation_max", pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
        Reading("pcie_width_max", pynvml.nvmlDeviceGetMaxPcieLinkWidth),
        Reading("sm_clock_max_mhz", lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)),
        Reading("slowdown_c", _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)),
        Reading("shutdown_c", _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)),
        Reading("memory_max_c", _threshold(pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)),
        Reading("power_limit_default_mw", pynvml.nvmlDeviceGetPowerManagementDefaultLimit),
        Reading("ecc_enabled", lambda handle: bool(pynvml.nvmlDeviceGetEccMode(handle)[0])),
        Reading("persistence", lambda handle: bool(pynvml.nvmlDeviceGetPersistenceMode(handle))),
        Reading("mig", mig),
    ]


def versions() -> dict[str, str]:
    """Of the driver, its library, and the newest CUDA it can run; the latter two where they are known.

    Raises:
        NVMLError: the driver does not tell its version.
    """
    cuda = _known(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    return {
        "driver": str(pynvml.nvmlSystemGetDriverVersion()),
        "nvml": _known(pynvml.nvmlSystemGetNVMLVersion) or "",
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
    }


def _known(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except pynvml.NVMLError:
        return None


def _architecture(handle: Any) -> int | None:
    number: int = pynvml.nvmlDeviceGetArchitecture(handle)
    return None if number == pynvml.NVML_DEVICE_ARCH_UNKNOWN else number


def _compute_capability(handle: Any) -> str:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return f"{major}.{minor}"


def _threshold(kind: int) -> Ask:
    return lambda handle: pynvml.nvmlDeviceGetTemperatureThreshold(handle, kind)

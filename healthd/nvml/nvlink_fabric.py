"""State and health of the GPU's NVLink fabric: NVSwitch systems from Hopper on."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

from healthd.nvml.gpu_reading import Ask, make_fallback_query


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

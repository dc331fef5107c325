"""Utilisation of a GPU's units since the last reading: NVML's performance metrics (GPM), Hopper and later."""

from __future__ import annotations

import math
from typing import Any

import pynvml

_METRICS = {
    "sm_active_percent": pynvml.NVML_GPM_METRIC_SM_UTIL,
    "tensor_active_percent": pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
    "dram_active_percent": pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
}


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
    request.numMetrics = len(_METRICS)
    request.sample1, request.sample2 = before, now
    for metric, number in zip(request.metrics, _METRICS.values(), strict=False):
        metric.metricId = number
    pynvml.nvmlGpmMetricsGet(request)
    return {
        name: metric.value
        for name, metric in zip(_METRICS, request.metrics, strict=False)
        if metric.nvmlReturn == pynvml.NVML_SUCCESS and math.isfinite(metric.value)
    }

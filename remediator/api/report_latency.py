"""Ingest latency: from a report's headers until everything new in it is durable."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ReportLatency:
    """The latency of one term. Written by the event loop's thread, a thousand times a second; read by any."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def count(self, took_s: float) -> None:
        """Count one accepted report, in seconds."""
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._total_s += took_s

    def family(self) -> HistogramMetricFamily:
        """Return the metric family for `/metrics`."""
        bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        text = "From the start of a report until all its changes were durable, since this leader started."
        buckets = list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
        return HistogramMetricFamily("remediator_report_seconds", text, buckets=buckets, sum_value=self._total_s)

"""Latencies as a Prometheus histogram: cheaper than the client library's, which locks for each value.

Latencies that begin when a request is read do not show how long it waited before: the event loop's lag does.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

LAG_EVERY_S = 0.1
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LatencyHistogram:
    """Written by one thread, up to a thousand times a second; read by any."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._total_s = 0.0

    def count(self, took_s: float) -> None:
        """Count one latency, in seconds."""
        self._counts[bisect_left(BOUNDS_S, took_s)] += 1
        self._total_s += took_s

    def family(self) -> HistogramMetricFamily:
        """Return the metric family for `/metrics`."""
        bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
        buckets = list(zip(bounds, map(float, accumulate(self._counts)), strict=True))
        return HistogramMetricFamily(self._name, self._text, buckets=buckets, sum_value=self._total_s)


def make_report_times() -> LatencyHistogram:
    """The ingest latency of one term, as the event loop sees it."""
    return LatencyHistogram(
        "remediator_report_seconds",
        "From a report's first bytes until all its changes were durable, since this leader started. Add the event loop's lag.",
    )


def make_loop_lag() -> LatencyHistogram:
    """How late the event loop comes to what is ready: requests wait as long before their first byte is read."""
    return LatencyHistogram(
        "remediator_event_loop_lag_seconds",
        "How late the event loop ran a timer, sampled ten times a second: ready sockets wait as long before they are read.",
    )


async def measure_event_loop_lag(count: Callable[[float], None]) -> None:
    """Pass the lag of the running loop to `count` ten times a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        count(max(0.0, loop.time() - due))

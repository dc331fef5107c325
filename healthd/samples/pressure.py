"""Pressure stall information: the share of time in which tasks waited for a resource."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class PressureStall(NamedTuple):
    """One resource. `some_percent`, `full_percent`: of the last 60 s, some or all tasks waited; totals in µs since boot."""

    resource: str  # cpu, io, memory
    some_percent: float | None
    full_percent: float | None
    some_us: int | None
    full_us: int | None


class PressureSample(NamedTuple):
    """All resources the kernel accounts for."""

    stalls: tuple[PressureStall, ...]


METRICS = (
    Family(
        rows="stalls",
        labels=("resource",),
        metrics=(
            Metric(
                "healthd_host_pressure_some_seconds_total",
                "Time in which some task waited for the resource.",
                "some_us",
                "counter",
                1e-6,
            ),
            Metric(
                "healthd_host_pressure_full_seconds_total",
                "Time in which all tasks waited for the resource.",
                "full_us",
                "counter",
                1e-6,
            ),
        ),
    ),
)

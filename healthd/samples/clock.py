"""How accurate the kernel's time is."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class ClockSample(NamedTuple):
    """The kernel's clock state, as time daemons set it. Errors are bounds, in µs."""

    synchronized: bool
    error_max_us: int
    error_estimated_us: int


METRICS = (
    Family(
        rows="",
        labels=(),
        metrics=(
            Metric("healthd_host_clock_synchronized", "1 if a time service synchronises the clock.", "synchronized"),
            Metric("healthd_host_clock_error_max_seconds", "Maximum error of the clock.", "error_max_us", factor=1e-6),
            Metric(
                "healthd_host_clock_error_estimated_seconds",
                "Estimated error of the clock.",
                "error_estimated_us",
                factor=1e-6,
            ),
        ),
    ),
)

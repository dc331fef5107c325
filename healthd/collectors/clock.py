"""Reads the kernel's clock state: adjtimex(2) without changing anything, 1 µs.

chrony, ntpd and systemd-timesyncd all inform the kernel, so none of them needs to be known here.
"""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options
from healthd.samples.metric_declaration import Family, Metric

UNSYNCHRONIZED = 0x40  # STA_UNSYNC of the status word
CLOCK_ERROR = 5  # TIME_ERROR, the call's result


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


def read_clock(machine: MachineAccess, options: Options) -> ClockSample:  # noqa: ARG001 - every collector takes options
    """Return the kernel's own state of the clock.

    Raises:
        SourceAbsent: another machine's clock cannot be read.
    """
    timex = machine.timex()
    unsynchronized = timex.result == CLOCK_ERROR or bool(timex.status & UNSYNCHRONIZED)
    return ClockSample(not unsynchronized, timex.error_max_us, timex.error_estimated_us)

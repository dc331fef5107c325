"""Reads the kernel's clock state: adjtimex(2) without changing anything, 1 µs.

chrony, ntpd and systemd-timesyncd all inform the kernel, so none of them needs to be known here.
"""

from __future__ import annotations

from healthd.collectors.machine_access import MachineAccess, Options
from healthd.samples.clock import ClockSample

UNSYNCHRONIZED = 0x40  # STA_UNSYNC of the status word
CLOCK_ERROR = 5  # TIME_ERROR, the call's result


def read_clock(machine: MachineAccess, options: Options) -> ClockSample:  # noqa: ARG001 - every collector takes options
    """Return the kernel's own state of the clock.

    Raises:
        SourceAbsent: another machine's clock cannot be read.
    """
    timex = machine.timex()
    unsynchronized = timex.result == CLOCK_ERROR or bool(timex.status & UNSYNCHRONIZED)
    return ClockSample(not unsynchronized, timex.error_max_us, timex.error_estimated_us)

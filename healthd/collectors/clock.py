"""Asks the kernel how good its time is: adjtimex(2) without changing anything, 1 µs.

chrony, ntpd and systemd-timesyncd all tell the kernel; so this needs to know none of them.
"""

from __future__ import annotations

from healthd.collectors.machine_access import MachineAccess, Options
from healthd.samples.clock import ClockSample

UNSYNCHRONIZED = 0x40  # STA_UNSYNC of the status word
CLOCK_ERROR = 5  # TIME_ERROR, the call's result


def read_clock(machine: MachineAccess, options: Options) -> ClockSample:  # noqa: ARG001 - every collector takes options
    """The kernel's own judgement.

    Raises:
        Absent: another machine's clock cannot be asked.
    """
    timex = machine.timex()
    unsynchronized = timex.result == CLOCK_ERROR or bool(timex.status & UNSYNCHRONIZED)
    return ClockSample(not unsynchronized, timex.error_max_us, timex.error_estimated_us)

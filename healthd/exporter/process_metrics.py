"""This process's own cost, under the names of all Prometheus clients. Its children are not counted."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from healthd.exporter.metric_families import CounterMetricFamily, GaugeMetricFamily, Metric

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def export_process() -> Iterator[Metric]:
    """Return six numbers of /proc/self. Unreadable ones are left out: the page works without a free descriptor."""
    for read in (_read_stat, _read_descriptors):
        with contextlib.suppress(OSError):
            yield from read()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield GaugeMetricFamily("process_max_fds", "Maximum number of open file descriptors.", value=limit)


def _read_stat() -> list[Metric]:
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()  # from the state on, the third field
    user, system, started, virtual, resident = (int(words[number]) for number in (11, 12, 19, 20, 21))
    begun = _read_boot_time() + started / _TICKS
    return [
        CounterMetricFamily("process_cpu_seconds_total", "User and system time.", value=(user + system) / _TICKS),
        GaugeMetricFamily("process_virtual_memory_bytes", "Size of the address space.", value=virtual),
        GaugeMetricFamily("process_resident_memory_bytes", "Memory in use.", value=resident * _PAGE_BYTES),
        GaugeMetricFamily("process_start_time_seconds", "When the process was started.", value=begun),
    ]


def _read_descriptors() -> list[Metric]:
    count = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return [GaugeMetricFamily("process_open_fds", "Open file descriptors.", value=count)]


def _read_boot_time() -> int:
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0

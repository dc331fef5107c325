"""From a line of the kernel's log to a finding that survives a power cut."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from bench import minimum_costs
from bench.node_daemon import STORED, measure_lines
from bench.report.records import Answer, Beside, Budget, Effort, Figure, Measured, Repeat, at_most, summarise_values


def measure_kernel_line(effort: Effort) -> Answer:
    """With nothing stored, and with long histories."""
    kmsg = minimum_costs.kmsg_usable()
    lines = effort.either(50, 200)
    read, committed = _bare_ms(lines) if kmsg else (0.0, 0.0)
    beside = Beside("bare reader of /dev/kmsg and a commit", committed) if kmsg else None
    figures = []
    for stored in STORED:
        repeats = tuple(_repeat(stored, lines, kmsg=kmsg) for _ in range(effort.repeats))
        limits = at_most(p50=3.0, p99=10.0)
        figures.append(Figure(named=f"{stored:,} stored", unit="ms", repeats=repeats, limits=limits, beside=beside))
    way = (
        "written to /dev/kmsg"
        if kmsg
        else "written to a followed file, which is looked at every 50 ms: /dev/kmsg cannot be written here"
    )
    return Measured(
        figures=tuple(figures),
        how=f"Single Xid lines {way}; durable is when another process can read the finding from the database, which it tries every 0.2 ms.",
        because=(
            f"a bare reader of the log has a line after {read:.2f} ms, since the kernel wakes it at a tick of its timer, and has committed it after {committed:.2f} ms "
            "(medians of this run); what the daemon takes beyond that is its judging, the observer's looks, and the neighbours on the same processors"
            if kmsg
            else "a followed file is looked at every 50 ms"
        ),
        moves="a kernel with a timer at 1000 Hz; idle processors; a disk that synchronises sooner",
    )


def _bare_ms(lines: int) -> tuple[float, float]:
    """Medians: until a line is read, until it is committed."""
    return statistics.median(minimum_costs.kernel_lines(lines)) * 1e3, statistics.median(
        minimum_costs.committed_lines(lines)
    ) * 1e3


def _repeat(stored: int, lines: int, *, kmsg: bool) -> Repeat:
    with tempfile.TemporaryDirectory(prefix="bench-healthd-") as place:
        return summarise_values(measure_lines(Path(place), stored, lines, kmsg=kmsg), 1e3)


BUDGET = Budget(
    "kernel-line",
    "Kernel line to finding durable on the node",
    "p50 ≤ 3 ms, p99 ≤ 10 ms, the same with 100 000 findings stored",
    measure_kernel_line,
)

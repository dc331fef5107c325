"""What one remediator takes of reports without news, by a generator that does not delay what it measures.

Usage: python -m bench.fleet.steady_load [--nodes N] [--seconds S] [--interval S] [--whole] [--at-once] [--burst N] [--store KIND]

`--at-once` measures a reconnect storm instead: all nodes connect at one moment and report whole, once.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

from bench.fleet import store
from bench.fleet.__main__ import polls_allowed
from bench.fleet.controller_replicas import CORE, Centre, free_ports
from bench.fleet.fault_burst import FaultBurst
from bench.fleet.load_generator import LoadError, LoadResult, LoadShape, run_load
from bench.fleet.options import JOIN_S, Options
from bench.fleet.samples import Usage, read_process_usage


class MeasuredLoad(NamedTuple):
    """`cpu_us` is processor time a report, of all processes of the controller; `burst` is None without one."""

    shape: LoadShape
    found: LoadResult
    cpu_us: float
    mib: float
    burst: FaultBurst | None


def main() -> None:
    """Measure, print a table."""
    asked = _parse_arguments()
    interval_s = asked.seconds if asked.at_once else asked.interval  # then one report a node
    join_s = 0.0 if asked.at_once else JOIN_S
    shape = LoadShape(asked.nodes, interval_s, asked.seconds, join_s, not asked.whole, asked.at_once)
    print("\n".join(build_rows(measure_load(shape, asked.store, asked.burst))))
    print(f"\nLoad average after: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores.")


def measure_load(shape: LoadShape, kind: str = "sqlite", burst: int = 0) -> MeasuredLoad:
    """Load a controller of its own, which gets a core of its own.

    Args:
        shape: the steady load.
        kind: of store.
        burst: so many other nodes break at one moment.
    """
    polls_allowed(shape.nodes, 0)  # raises the limit of open files
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {CORE})
    with (
        tempfile.TemporaryDirectory(prefix="gh-load-", ignore_cleanup_errors=True) as place,
        store.run_database(kind, Path(place)) as url,
    ):
        return _measure(shape, burst, Path(place), url)


def _measure(shape: LoadShape, burst: int, place: Path, url: str) -> MeasuredLoad:
    ports = free_ports(1)
    everybody = Options(nodes=shape.nodes + burst, seconds=shape.seconds, place=str(place), ports=ports, polls=0)
    store.prepare_database(url, everybody)
    centre = Centre(place, url, ports, None)
    others = FaultBurst(ports[0], url, range(shape.nodes, shape.nodes + burst), (2 * shape.join_s + shape.seconds) / 3)
    usage: list[Usage] = []
    try:
        centre.start()
        process = centre.leader().process
        threading.Timer(shape.join_s, lambda: usage.append(read_process_usage(process))).start()
        if burst:
            others.start()
        try:
            found = run_load(place, ports[0], shape)
        except LoadError as error:
            raise SystemExit(str(error)) from None
        usage.append(read_process_usage(process))
        if burst:
            others.wait()
    finally:
        centre.stop()
    reports = shape.nodes / shape.interval_s * (shape.seconds - shape.join_s)
    cpu_us = (usage[-1].cpu_s - usage[0].cpu_s) * 1e6 / reports
    return MeasuredLoad(shape, found, cpu_us, usage[-1].mib, others if burst else None)


def build_rows(measured: MeasuredLoad) -> list[str]:
    """A Markdown table and what it leaves out."""
    shape, found = measured.shape, measured.found
    wanted, counted_s = shape.nodes / shape.interval_s, shape.seconds - shape.join_s
    rows = [
        f"| {shape.nodes} nodes, a report every {shape.interval_s:g} s | median | 99 % | worst |",
        "|---|---|---|---|",
        "| latency from the due time, ms | " + " | ".join(f"{value:.1f}" for value in found.latency_ms) + " |",
        "| the generator's own lateness, ms | " + " | ".join(f"{value:.1f}" for value in found.lateness_ms) + " |",
        "",
        (
            f"{found.answered / counted_s:.0f} of {wanted:.0f} reports a second answered, "
            f"{100 * found.whole / max(1, found.sent):.1f} % of them whole reports; {found.refused} refused, "
            f"{found.broken} lost with their connection, {found.waiting} waiting at the end. "
            f"Processor a report: {measured.cpu_us:.0f} us; memory {measured.mib:.0f} MiB."
        ),
    ]
    return rows if measured.burst is None else [*rows, measured.burst.describe()]


def _parse_arguments() -> argparse.Namespace:
    asks = argparse.ArgumentParser(prog="python -m bench.fleet.steady_load", description=__doc__)
    asks.add_argument("--nodes", type=int, default=12_500)
    asks.add_argument("--seconds", type=float, default=120.0)
    asks.add_argument("--interval", type=float, default=10.0, help="seconds between two reports of a node")
    asks.add_argument("--whole", action="store_true", help="only whole reports, as of an older healthd")
    asks.add_argument("--burst", type=int, default=0, help="so many other nodes break at one moment")
    asks.add_argument("--at-once", action="store_true", help="all nodes connect at one moment")
    asks.add_argument("--store", choices=store.KINDS, default="sqlite")
    return asks.parse_args()


if __name__ == "__main__":
    main()

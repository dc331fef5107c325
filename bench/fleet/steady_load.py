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

from bench.fleet import store
from bench.fleet.__main__ import polls_allowed
from bench.fleet.controller_replicas import CORE, Centre, free_ports
from bench.fleet.fault_burst import FaultBurst
from bench.fleet.load_generator import LoadError, LoadResult, LoadShape, run_load
from bench.fleet.options import JOIN_S, Options
from bench.fleet.samples import Usage, read_process_usage


def main() -> None:
    """Measure, print a table."""
    asked = _parse_arguments()
    polls_allowed(asked.nodes, 0)  # raises the limit of open files
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {CORE})
    with (
        tempfile.TemporaryDirectory(prefix="gh-load-", ignore_cleanup_errors=True) as place,
        store.run_database(asked.store, Path(place)) as url,
    ):
        print("\n".join(_measure(asked, Path(place), url)))
    print(f"\nLoad average after: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores.")


def _measure(asked: argparse.Namespace, place: Path, url: str) -> list[str]:
    ports = free_ports(1)
    interval_s = asked.seconds if asked.at_once else asked.interval  # then one report a node
    join_s = 0.0 if asked.at_once else JOIN_S
    shape = LoadShape(asked.nodes, interval_s, asked.seconds, join_s, not asked.whole, asked.at_once)
    store.prepare_database(
        url, Options(nodes=asked.nodes + asked.burst, seconds=asked.seconds, place=str(place), ports=ports, polls=0)
    )
    centre = Centre(place, url, ports, None)
    try:
        centre.start()
        process = centre.leader().process
        usage: list[Usage] = []
        joined = threading.Timer(shape.join_s, lambda: usage.append(read_process_usage(process)))
        joined.start()
        others = range(asked.nodes, asked.nodes + asked.burst)
        burst = FaultBurst(ports[0], url, others, join_s + (asked.seconds - join_s) / 3)
        burst.start()
        try:
            found = run_load(place, ports[0], shape)
        except LoadError as error:
            raise SystemExit(str(error)) from None
        usage.append(read_process_usage(process))
        of_burst = burst.describe()
    finally:
        centre.stop()
    rows = build_rows(asked.nodes, interval_s, found, (usage[0], usage[-1]), asked.seconds - join_s)
    return [*rows, *([of_burst] if of_burst else [])]


def build_rows(
    nodes: int, interval_s: float, found: LoadResult, usage: tuple[Usage, Usage], counted_s: float
) -> list[str]:
    """A Markdown table. `usage`: when the fleet had joined, and at the end."""
    cpu_us = (usage[1].cpu_s - usage[0].cpu_s) * 1e6 / (nodes / interval_s * counted_s)
    return [
        f"| {nodes} nodes, a report every {interval_s:g} s | median | 99 % | worst |",
        "|---|---|---|---|",
        "| latency from the due time, ms | " + " | ".join(f"{value:.1f}" for value in found.latency_ms) + " |",
        "| the generator's own lateness, ms | " + " | ".join(f"{value:.1f}" for value in found.lateness_ms) + " |",
        "",
        (
            f"{found.answered / counted_s:.0f} of {nodes / interval_s:.0f} reports a second answered, "
            f"{100 * found.whole / max(1, found.sent):.1f} % of them whole reports; {found.refused} refused, "
            f"{found.broken} lost with their connection, {found.waiting} waiting at the end. Processor a report: {cpu_us:.0f} us; "
            f"memory {usage[1].mib:.0f} MiB."
        ),
    ]


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

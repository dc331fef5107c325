"""Load one remediator with a whole fleet, and print what was measured beside its budgets."""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from bench.fleet import outcome, store, table
from bench.fleet.accounts import compare_findings
from bench.fleet.controller_replicas import CORE, ROOT, Centre, create_certificate, free_ports
from bench.fleet.options import INTERVAL_S, Options
from bench.fleet.samples import Samples

FILES_BESIDE = 500  # that a process opens beside its connections with nodes
ENDS_WITHIN_S = 120.0


def main() -> None:
    """Measure, print."""
    asked = _asked()
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {CORE})
    load = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="gh-fleet-", ignore_cleanup_errors=True) as place,
        store.run_database(asked.store, Path(place)) as url,
    ):
        options = _options(asked, place)
        print("\n".join(table.build_result_rows(measure_fleet(options, url, load))))
        print(f"\nLoad average before: {load:.1f}, after: {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores.")


def measure_fleet(options: Options, url: str, load: float) -> table.Run:
    """One run."""
    place = Path(options.place)
    store.prepare_database(url, options)
    tls = (options.certificate, str(Path(options.certificate).with_suffix(".key"))) if options.certificate else None
    centre = Centre(place, url, options.ports, tls)
    samples = Samples(centre)
    try:
        started_s = centre.start()
        samples.start()
        _crowd(options, centre)
        samples.stop()
    finally:
        centre.stop()
    tally, took = outcome.read_outcome(place)
    accounts = compare_findings(tally.findings, *store.read_stored_findings(url))
    return table.Run(options, started_s, tally, took, samples.usages, samples.pages, accounts, load)


def _crowd(options: Options, centre: Centre) -> None:
    """The pretended nodes, from beginning to end; the leader is killed when it is time."""
    file = Path(options.place) / "options.json"
    file.write_bytes(msgspec.json.encode(options))
    crowd = subprocess.Popen([sys.executable, "-m", "bench.fleet.simulated_nodes", str(file)], cwd=ROOT)
    try:
        if options.kill_at >= 0:
            time.sleep(options.kill_at)
            centre.kill_leader()
        status = crowd.wait(options.seconds + ENDS_WITHIN_S)
    finally:
        crowd.kill()
    if status != 0:
        raise SystemExit(f"the pretended nodes ended with {status}; what they said stands above")


def _asked() -> argparse.Namespace:
    asks = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    asks.add_argument("--nodes", type=int, default=12_500)
    asks.add_argument("--minutes", type=float, default=10.0)
    asks.add_argument("--store", choices=store.KINDS, default="sqlite")
    asks.add_argument("--interval", type=float, default=INTERVAL_S, help="seconds between two reports of a node")
    asks.add_argument(
        "--polls", type=int, help="nodes that also hold a poll for orders; as many as may be, if not given"
    )
    asks.add_argument("--faults", type=float, default=4.0, help="of a node and day")
    asks.add_argument("--burst", type=int, default=1000, help="so many nodes with a fault at one moment; 0: never")
    asks.add_argument("--kill", action="store_true", help="kill -9 of the leader")
    asks.add_argument("--slow", type=int, default=20, help="clients that drip their bodies")
    asks.add_argument("--malformed", type=int, default=20, help="clients that send what is no report")
    asks.add_argument("--tls", action="store_true")
    return asks.parse_args()


def _options(asked: argparse.Namespace, place: str) -> Options:
    seconds = 60 * asked.minutes
    return Options(
        nodes=asked.nodes,
        seconds=seconds,
        place=place,
        ports=free_ports(2 if asked.store == "postgresql" else 1),
        interval_s=asked.interval,
        polls=polls_allowed(asked.nodes, asked.nodes if asked.polls is None else asked.polls),
        faults_per_day=asked.faults,
        burst=min(asked.burst, asked.nodes),
        burst_at=0.9 * seconds if asked.burst else -1.0,
        kill_at=0.7 * seconds if asked.kill else -1.0,
        slow=asked.slow,
        malformed=asked.malformed,
        certificate=create_certificate(Path(place))[0] if asked.tls else "",
    )


def polls_allowed(nodes: int, wanted: int) -> int:
    """How many of the polls wanted may be: every node is a connection, every poll another, and a process may open only so many."""
    needed = nodes + wanted + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # only root may have more than the hard limit
        hard = max(hard, needed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if (most := hard - nodes - FILES_BESIDE) < 0:
        raise SystemExit(
            f"{nodes} nodes need {nodes + FILES_BESIDE} open files, and {hard} are allowed: raise 'ulimit -Hn', or take fewer"
        )
    return min(most, wanted)


if __name__ == "__main__":
    main()

"""How long a preflight takes here: `python bench/preflight_gate.py [--level gate] [--runs 5]`.

Whole runs, start-up included, one after the other; a table of medians with the whole range, and the seconds of processor. Nothing is
asserted. On a GPU the same is measured as on the host: the document says which it was.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from typing import NamedTuple


class GateRun(NamedTuple):
    """One whole run: seconds by the clock and of the processor, the verdict, the devices, and the slowest device's seconds of each test."""

    wall_s: float
    cpu_s: float
    verdict: str
    devices: str
    tests: dict[str, float]


def one_run(level: str) -> GateRun:
    """Start it as a person would, and wait."""
    began, before = time.perf_counter(), _used()
    command = [sys.executable, "-m", "preflight", "run", "--level", level, "-o", "json"]
    done = subprocess.run(command, capture_output=True, check=False)
    wall, cpu = time.perf_counter() - began, _used() - before
    document = json.loads(done.stdout)
    slowest: dict[str, float] = {}
    for result in document["results"]:
        slowest[result["test"]] = max(slowest.get(result["test"], 0.0), result.get("seconds", 0.0))
    devices = f"{len(document['devices'])} x {document['devices'][0]['label']}"
    return GateRun(wall, cpu, document["verdict"], devices, slowest)


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--level", default="gate")
    parser.add_argument("--runs", type=int, default=5)
    asked = parser.parse_args()
    print(f"Load before: {os.getloadavg()[0]:.1f}\n\n| | median s | least | most |\n|---|---:|---:|---:|")
    runs = [one_run(asked.level) for _ in range(asked.runs)]
    tests: dict[str, list[float]] = defaultdict(list)
    for test, seconds in (pair for run in runs for pair in run.tests.items()):
        tests[test].append(seconds)
    whole = f"**{asked.level}, whole**, {runs[-1].devices}"
    rows = {whole: [run.wall_s for run in runs], "processor": [run.cpu_s for run in runs], **tests}
    for name, values in rows.items():
        print(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} | {max(values):.2f} |")
    print(f"\n{asked.runs} runs: {', '.join(run.verdict for run in runs)}.")
    return 0


def _used() -> float:
    """Seconds of processor of all children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


if __name__ == "__main__":
    sys.exit(main())

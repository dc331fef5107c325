"""Side by side, on this machine: from the loss of a rank to the next finished step, by three ways.

    make adapters                                  # installs the other two; without them, they are left out
    python -m bench.side_by_side [--runs 5] [--only swap quick] [--faults kill]

Each run starts a job of two ranks (and a spare, where the way has one) over gloo in steps of 50 ms, kills or freezes rank
1 in its 30th step or later, and ends 20 steps after the recovery. The ways alternate. "Again" are finished steps that are
trained again. Losses are compared bit for bit with those of one process that is never disturbed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench.side_by_side.lost_rank import FAULTS, Outcome, lose_rank
from bench.side_by_side.ways import ADAPTERS, WAYS, Way

REFERENCE_STEPS = 600
VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


def find_version(package: str) -> str:
    """Of a package in the adapters' environment; nothing where it is not installed."""
    if not ADAPTERS.exists():
        return ""
    found = subprocess.run([ADAPTERS, "-c", VERSION, package], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def select_installed(ways: list[Way]) -> list[Way]:
    """The ways that can run; one line for each package, also for those that are missing."""
    versions = {way.package: find_version(way.package) for way in ways if way.package}
    for package, version in versions.items():
        print(f"{package} {version}" if version else f"{package} is not compared: not installed (make adapters)")
    return [way for way in ways if not way.package or versions[way.package]]


def make_reference() -> list[str]:
    """The undisturbed losses."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        argv = [sys.executable, "-m", "bench.side_by_side.tiny_training", file.name, str(REFERENCE_STEPS)]
        subprocess.run(argv, check=True)
        losses: list[str] = json.loads(Path(file.name).read_text())
    return losses


def describe_outcomes(found: list[Outcome]) -> str:
    """One row's cells."""
    seconds = sorted(each.seconds for each in found)
    worlds = ",".join(sorted({str(each.world) for each in found}))
    again = max(each.steps_again for each in found)
    same = sum(each.losses_after for each in found)
    wrong_before = sum(not each.losses_before for each in found)
    cells = (
        f"{seconds[len(seconds) // 2]:8.3f} {seconds[0]:8.3f} {seconds[-1]:8.3f} {len(found):5} {again:6} {worlds:>6}"
    )
    return f"{cells} {same:>6}/{len(found)}" + (f"  {wrong_before} differed before the fault" if wrong_before else "")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[""], help="ways whose name contains one of these")
    parser.add_argument("--faults", default="", help="faults whose name contains this")
    options = parser.parse_args()
    ways = select_installed([way for way in WAYS if any(text in way.name for text in options.only)])
    faults = [fault for fault in FAULTS if options.faults in fault]
    reference = make_reference()
    print(f"load before: {os.getloadavg()[0]:.1f}", flush=True)
    found: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for run in range(options.runs):
        for fault in faults:
            for way in ways:
                try:
                    outcome = lose_rank(way, fault, reference)
                except TimeoutError as error:
                    print(f"run {run}, {way.name}, {fault}: {error}", flush=True)
                    continue
                print(f"run {run}, {way.name}, {fault}: {outcome}", flush=True)
                found[way.name, fault].append(outcome)
    print(f"load after: {os.getloadavg()[0]:.1f}\n")
    print(f"{'':<58} {'median':>8} {'best':>8} {'worst':>8} {'runs':>5} {'again':>6} {'world':>6} {'same losses':>8}")
    for (name, fault), outcomes in found.items():
        print(f"{name + ', ' + fault:<58} {describe_outcomes(outcomes)}")


if __name__ == "__main__":
    main()

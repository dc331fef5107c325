"""How long every link of the chain takes: the demo, several times, and the spread. `python bench/chain.py [--runs N]`.

Each run is the whole path on real parts (see `healthctl demo --help`). Times count from the finding's first evidence.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

RUN_DEADLINE_S = 400


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    figures: dict[str, list[float]] = {}
    lost: dict[str, list[float]] = {}
    for _ in range(runs):
        command = [sys.executable, "-m", "healthctl", "demo", "-o", "json"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUN_DEADLINE_S)
        if done.returncode != 0:
            print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
            return 1
        document = json.loads(done.stdout)
        for name, value in document["latencies_ms"].items():
            figures.setdefault(name, []).append(value)
        for name, value in document["steps_lost"].items():
            lost.setdefault(f"{name}: steps lost", []).append(value)
    print(f"| link ({runs} runs) | median | least | most |\n|---|---:|---:|---:|")
    for unit, rows in ((" ms", figures), ("", lost)):
        for name, values in rows.items():
            print(f"| {name} | {statistics.median(values):,.1f}{unit} | {min(values):,.1f} | {max(values):,.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

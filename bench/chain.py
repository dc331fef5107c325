"""The whole chain, link by link: from the fault to the decision, the mailbox, the agreed step, the checkpoint, the drain.

    python bench/chain.py [--runs 3] [--backend auto]

Runs the demo that often (a minute each) and prints the median and the worst of each link. Everything is real but the
driver and the number of machines; all five nodes share this host's processors, so a link that starts programs is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HEALTHCTL = Path(sys.executable).with_name("healthctl")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--backend", choices=["auto", "slurm", "local"], default="auto")
    args = parser.parse_args()
    found: dict[str, list[float]] = {}
    lost: list[dict[str, int]] = []
    for number in range(1, args.runs + 1):
        print(f"run {number} of {args.runs} ...", file=sys.stderr)
        argv = [str(HEALTHCTL), "demo", "--json", f"--backend={args.backend}"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=False)
        document = json.loads(done.stdout)
        if not document["ok"]:
            sys.exit("the demo failed: " + "; ".join(c["detail"] for c in document["checks"] if not c["ok"]))
        lost.append(document["steps_lost"])
        for link, value in document["latencies_ms"].items():
            found.setdefault(link, []).append(value)
    print(f"{args.runs} runs on {os.cpu_count()} processors\n")
    print(f"{'link':<44} {'median':>12} {'worst':>12}")
    for link, values in found.items():
        print(f"{link:<44} {statistics.median(values):>9,.0f} ms {max(values):>9,.0f} ms")
    for way in ("graceful", "abort"):
        print(
            f"steps lost, {way:<32} {statistics.median(each[way] for each in lost):>9,.0f}    {max(each[way] for each in lost):>9,.0f}"
        )


if __name__ == "__main__":
    main()

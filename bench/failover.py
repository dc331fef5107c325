"""How long a cluster has no leader after `kill -9` of the one it had: three replicas on one PostgreSQL, all on this machine.

Measured from the signal to the first answer of 200 to `/healthz` (a load balancer would send requests there), and to the first
outside effect that the new leader may begin. Usage: bench/failover.py [RUNS]
"""

from __future__ import annotations

import re
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import requests  # noqa: E402 - behind the path of the tests' own modules

from tests import postgresql  # noqa: E402 - same
from tests.e2e.replicas import Replica, Replicas  # noqa: E402 - same

RUNS = 20


def main() -> None:
    """Print a table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    if why := postgresql.why_not():
        print(f"no PostgreSQL here: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="gh-bench-") as place:
        Path(place).chmod(0o755)
        with postgresql.running(Path(place) / "pg") as cluster:
            replicas = Replicas(Path(place), cluster)
            replicas.start()
            try:
                times = [measure_failover(replicas) for _ in range(runs)]
            finally:
                replicas.close()
    for name, found in zip(("ready", "may act"), zip(*times, strict=True), strict=True):
        print(f"{name:8} median {statistics.median(found):.2f} s, max {max(found):.2f} s, n {len(found)}")


def measure_failover(replicas: Replicas) -> tuple[float, float]:
    """Kill the leader; seconds until another one is ready, and until it may act."""
    old = replicas.leader()
    while not _acts(old):
        time.sleep(0.05)
    start = time.monotonic()
    old.end(signal.SIGKILL)
    new = replicas.leader(but=old)
    ready = time.monotonic() - start
    while not _acts(new):
        time.sleep(0.01)
    acts = time.monotonic() - start
    old.start()
    return ready, acts


def _acts(replica: Replica) -> bool:
    page = requests.get(f"{replica.url}/metrics", timeout=10).text
    return re.search(r"^remediator_leading 1", page, re.MULTILINE) is not None


if __name__ == "__main__":
    main()

"""A node's `preflight_command`: the real runner at its gate level on this machine's processor, one at a time.

    python -m bench.day.preflight_stand_in PLACE NODE [OPTION...]

What is pretended is the fault: where the node's GPU is bad the runner is told to commit one, which it must then find.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from bench.day.device import Device

FAULT = "matmul_repeat:one_output"


def main() -> int:
    """Run it; its document and its exit code."""
    place, node = Path(sys.argv[1]), sys.argv[2]
    with (place / "preflight.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.nice(10)
        state = Device(place / "nodes" / node).read()
        argv = [sys.executable, "-m", "preflight", "run", "--level", "gate", "-o", "json"]
        argv += [f"--inject={FAULT}"] if state.stays or state.slow > 1 else []
        return subprocess.run([*argv, *sys.argv[3:]], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

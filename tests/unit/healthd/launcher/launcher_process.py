"""The launcher as its own process, small shell commands for its ranks, and what it recorded."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

DEADLINE_S = 90.0
LEAVES = f"{sys.executable} {Path(__file__).with_name('leaving_rank.py')}"
QUICK = ("--backoff-seconds", "0.01", "--gate", "off")


def argv(*options: str, nodes: str = "n0,n1,n2", events: Path | None = None) -> list[str]:
    record = ["--events", str(events)] if events else []
    return [
        sys.executable,
        "-m",
        "healthctl.main",
        "launch",
        "--backend",
        "local",
        "--node-names",
        nodes,
        *record,
        *options,
    ]


def launch(*options: str, nodes: str = "n0,n1,n2", events: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv(*options, nodes=nodes, events=events), capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )


def read_events(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def attempts(path: Path) -> list[object]:
    return [event["nodes"] for event in read_events(path) if event["event"] == "attempt_started"]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until(what: Callable[[], bool], why: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < end, why
        time.sleep(0.01)

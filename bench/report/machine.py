"""The machine that was measured on, as far as figures depend on it."""

from __future__ import annotations

import os
import platform
import re
import statistics
import subprocess
import time
from pathlib import Path

import msgspec

CLOCK_MONOTONIC_COARSE = 6  # Linux's number; it moves once a tick
ROOT = Path(__file__).parents[2]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """`hz`: ticks a second of the kernel's timer; the kernel wakes readers of its log at the next one."""

    processor: str
    cores: int
    memory_gib: float
    system: str
    kernel: str
    hz: int
    python: str
    commit: str


def describe_machine() -> Machine:
    """This one, and the commit of this tree (with a `+` where files are changed)."""
    told = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    release = platform.freedesktop_os_release()
    return Machine(
        processor=found[1].strip() if found else platform.machine(),
        cores=os.cpu_count() or 1,
        memory_gib=int(memory[1]) / 2**20 if memory else 0.0,
        system=release.get("PRETTY_NAME", platform.system()),
        kernel=platform.release().partition("-")[0],
        hz=round(1 / time.clock_getres(CLOCK_MONOTONIC_COARSE)),
        python=platform.python_version(),
        commit=_git("rev-parse", "--short=10", "HEAD") + ("+" if _git("status", "--porcelain", "-uno") else ""),
    )


def fixed_python_ms() -> float:
    """How long a piece of Python takes that never changes: machines, and moments of one machine, differ by it."""
    took = []
    for _ in range(5):
        began, total = time.perf_counter(), 0
        for number in range(1_000_000):
            total += number * number % 7
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e3


def _git(*argv: str) -> str:
    done = subprocess.run(["git", *argv], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip()

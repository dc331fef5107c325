"""What the remediator uses and says of itself over time: memory, processor, what waits in it, its own times of reports."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from pathlib import Path
from typing import NamedTuple

from bench.fleet.controller_replicas import Centre, Replica

EVERY_S = 5.0
PAGE_EVERY = 3  # samples: Prometheus asks each 15 s
TICK = os.sysconf("SC_CLK_TCK")
BUCKET = re.compile(r'^remediator_report_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.MULTILINE)
WAITING = re.compile(r"^remediator_inputs_waiting (\S+)$", re.MULTILINE)
AGE = re.compile(r"^remediator_batch_age_seconds (\S+)$", re.MULTILINE)


class Usage(NamedTuple):
    """Of one process at one moment, monotonic seconds."""

    at: float
    pid: int
    cpu_s: float
    mib: float


class Page(NamedTuple):
    """What the leader's metrics say. `reports`: how many of its reports took no longer than so many seconds."""

    at: float
    waiting: float
    batch_age_s: float
    reports: dict[float, float]


class Samples:
    """Taken by a thread of its own between `start` and `stop`."""

    def __init__(self, centre: Centre) -> None:
        self.usages: list[Usage] = []
        self.pages: list[Page] = []
        self._centre = centre
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """No more."""
        self._stopping.set()
        self._thread.join(EVERY_S)

    def _run(self) -> None:
        count = 0
        while not self._stopping.wait(EVERY_S):
            leader = next((replica for replica in self._centre.replicas if replica.leads), None)
            if leader is None:
                continue
            self.usages.append(read_process_usage(leader.process))
            if count % PAGE_EVERY == 0:
                self._look(leader)
            count += 1

    def _look(self, leader: Replica) -> None:
        text = leader.metrics()
        waiting, age = WAITING.search(text), AGE.search(text)
        if waiting is not None and age is not None:
            reports = {float(le): float(count) for le, count in BUCKET.findall(text)}
            self.pages.append(Page(time.monotonic(), float(waiting[1]), float(age[1]), reports))


def read_process_usage(process: subprocess.Popen[bytes] | None) -> Usage:
    """What a process and its children have used until now."""
    assert process is not None
    children: list[str] = []
    for thread in Path(f"/proc/{process.pid}/task").iterdir():
        children += (thread / "children").read_text().split()
    each = [_read_usage(pid) for pid in (process.pid, *{int(child) for child in children})]
    return Usage(time.monotonic(), process.pid, sum(cpu_s for cpu_s, _ in each), sum(mib for _, mib in each))


def _read_usage(pid: int) -> tuple[float, float]:
    """Return processor seconds and resident MiB of one process."""
    place = Path(f"/proc/{pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    resident = re.search(r"VmRSS:\s+(\d+)", (place / "status").read_text())
    return (int(fields[11]) + int(fields[12])) / TICK, int(resident[1]) / 1024 if resident else 0.0


def own_quantile_ms(pages: list[Page], share: float) -> float:
    """Of the leader's own times between its first and its last page here: the bound of the bucket it falls in, ms."""
    if len(pages) < 2:
        return float("nan")
    first, last = pages[0].reports, pages[-1].reports
    counts = {le: last[le] - first.get(le, 0.0) for le in sorted(last)}
    total = max(counts.values(), default=0.0)
    return next((1000 * le for le, count in counts.items() if total and count >= share * total), float("nan"))

"""One lost rank: what the ranks' records say of the seconds, the steps and the losses."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.side_by_side.tiny_training import PACE_S
from bench.side_by_side.ways import Job, Way

STEPS_BEFORE, STEPS_AFTER = 30, 20
START_S = 120.0
FAULTS = {"kill -9": signal.SIGKILL, "frozen (SIGSTOP)": signal.SIGSTOP}
Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Of one loss. `seconds`: from the signal to the end of rank 0's first step in the new group."""

    seconds: float
    steps_again: int
    world: int
    losses_before: bool
    losses_after: bool


def read_rows(file: Path) -> list[Row]:
    """All finished steps, in order of their end."""
    lines = file.read_text().splitlines() if file.exists() else []
    return sorted(map(json.loads, lines), key=lambda row: float(row["at"]))


def wait_for_rows(job: Job, ready: Callable[[list[Row]], bool], limit_s: float, lost: int = 0) -> list[Row]:
    """The records, as soon as they are `ready`.

    Raises:
        TimeoutError: they are not in time, or more than the `lost` processes have ended; with the end of the job's log.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end and job.count_ended() <= lost:
        if ready(rows := read_rows(job.steps_file)):
            return rows
        time.sleep(0.05)  # rarely: the ranks need the processors
    raise TimeoutError(
        f"no more steps after {limit_s - end + time.monotonic():.0f} s; {job.count_ended()} processes have ended:\n{(job.place / 'log').read_text()[-3000:]}"
    )


def lose_rank(way: Way, fault: str, reference: list[str]) -> Outcome:
    """Start a job, lose rank 1 by the signal, and wait for some steps more."""
    place = Path(tempfile.mkdtemp(prefix="bench-side-", dir="/dev/shm"))
    job = Job(place)
    try:
        return _lose_rank(job, way, fault, reference)
    finally:
        job.end()
        if os.environ.get("BENCH_KEEP"):
            print(f"kept: {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)


def _lose_rank(job: Job, way: Way, fault: str, reference: list[str]) -> Outcome:
    way.start(job, way.settings)

    def are_under_way(rows: list[Row]) -> bool:
        return {0, 1} <= {row["rank"] for row in rows if row["step"] >= STEPS_BEFORE}

    rows = wait_for_rows(job, are_under_way, START_S)
    time.sleep(random.uniform(0, PACE_S))  # noqa: S311 - at any moment of a step
    victim = max((row for row in rows if row["rank"] == 1), key=lambda row: int(row["step"]))
    began, generation = time.time(), victim["generation"]
    os.kill(victim["pid"], FAULTS[fault])
    if FAULTS[fault] == signal.SIGSTOP:
        job.after_freeze()

    def of_rank_0(rows: list[Row]) -> list[Row]:
        return [row for row in rows if row["rank"] == 0 and row["at"] > began and row["generation"] != generation]

    rows = wait_for_rows(job, lambda rows: len(of_rank_0(rows)) >= STEPS_AFTER, way.limit_s, 1)
    if FAULTS[fault] == signal.SIGSTOP:
        _end_frozen(victim["pid"])
    after = of_rank_0(rows)
    before = [row for row in rows if row["rank"] == 0 and row["generation"] == generation]
    return Outcome(
        seconds=after[0]["at"] - began,
        steps_again=max(
            0, before[-1]["step"] + 1 - after[0]["step"]
        ),  # torchft: the others may have committed one more
        world=after[-1]["world"],
        losses_before=all(row["loss"] == reference[row["step"]] for row in before),
        losses_after=all(row["loss"] == reference[row["step"]] for row in after),
    )


def _end_frozen(pid: int) -> None:
    """Whoever froze it ends it, if nobody has."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

"""A job under `healthctl launch --swap` on simulated nodes of this machine, whose ranks a bench loses; and the table of how long that takes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bench.measured_node import ROOT, select_quantile
from healthd.trainer.beacons.beacon import read_all_pages
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.page_reader import BeaconView

DEADLINE_S = 120.0
LOOK_S = 0.002
Seconds = dict[str, float]


class SwapJob:
    """One job, its events and its ranks' pages. Its ranks die with its launcher."""

    def __init__(
        self,
        place: Path,
        nodes: Sequence[str],
        options: Sequence[str],
        command: Sequence[str],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Start it. Args: `place`: an empty folder; `options`: of the launcher; `command`: of a rank; `environ`: besides this one's."""
        self.place, self.nodes = place, nodes
        self._events, self._log = place / "events.jsonl", place / "log"
        (place / "beacons").mkdir()
        for node in nodes:
            prepare_directory(str(place / "beacons" / node))
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off", "--swap"]
        argv += [f"--node-names={','.join(nodes)}", f"--events={self._events}", *options, "--", *command]
        own = {"HEALTHD_BEACON_DIR": f"{place}/beacons/{{node}}", "HEALTHD_JOB": f"bench-{os.getpid()}"}
        with self._log.open("wb") as log:
            environ = {**os.environ, **own, **(environ or {})}
            self.launcher = subprocess.Popen(argv, env=environ, stdout=log, stderr=log, cwd=ROOT)

    def read_pages(self) -> list[BeaconView]:
        """The pages of living ranks, by rank."""
        pages = [view for node in self.nodes for view in read_all_pages(f"{self.place}/beacons/{node}")[0]]
        return sorted((view for view in pages if view.alive), key=lambda view: view.identity.rank)

    def read_events(self, kind: str) -> list[dict[str, Any]]:
        """The launcher's events of a kind, so far."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] == kind]

    def wait_for(self, kind: str, number: int) -> dict[str, Any]:
        """The `number`-th event of a kind, from 0 on."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            if len(found := self.read_events(kind)) > number:
                return found[number]
            time.sleep(LOOK_S)
        raise self.failure(f"no {kind} number {number}")

    def wait_trained(self, ranks: int, steps: int) -> list[BeaconView]:
        """The ranks' pages, by rank, once each is held by one living process, and all have trained so many steps from then on."""
        end, begun = time.monotonic() + DEADLINE_S, -1
        while time.monotonic() < end:
            views = self.read_pages()
            reached = min((view.state.step for view in views), default=-1)
            complete = [view.identity.rank for view in views] == list(range(ranks))
            if complete and reached >= 0:
                begun = begun if begun >= 0 else reached
                if reached >= begun + steps:
                    return views
            time.sleep(LOOK_S * ranks)
        raise self.failure("not all ranks train")

    def failure(self, why: str) -> SystemExit:
        """What ends the bench, with all that the job has said."""
        return SystemExit(f"{why}:\n{self._log.read_text()}")


Job = TypeVar("Job", bound=SwapJob)


@contextlib.contextmanager
def run_job(start: Callable[[Path], Job]) -> Iterator[Job]:
    """A job in a place of its own; nothing of it is left."""
    place = Path(tempfile.mkdtemp(prefix="bench-swap-"))
    try:
        job = start(place)
        try:
            yield job
        finally:
            job.launcher.kill()
            job.launcher.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/bench-{os.getpid()}", ignore_errors=True)


def print_header(phases: Sequence[str]) -> None:
    """The first row of the table."""
    names = (*phases, "in all")
    print(f"{'seconds, median':<36} " + " ".join(f"{name:>10}" for name in names) + f" {'p95':>7} {'worst':>7}")


def print_seconds(words: str, found: list[Seconds]) -> None:
    """One row: medians by phase, and of the whole also the tail."""
    columns = {name: sorted(each[name] for each in found) for name in found[0]}
    medians = " ".join(f"{select_quantile(column, 0.5):10.3f}" for column in columns.values())
    total = columns["in all"]
    print(f"{words:<36} {medians} {select_quantile(total, 0.95):7.3f} {total[-1]:7.3f}", flush=True)

"""From the loss of a node without a spare to the next step with fewer, and from its return to the next step with more.

    python -m bench.elastic [--runs 20]

The elastic example on three pretend nodes of this machine, one rank each, in steps of 50 ms. A shrink counts from kill -9 to
the end of the first step that is trained after it; "before" is the time until the launcher knows. A growth counts from when
the ranks are asked to pause, as the processes of the node that has returned wait; "before" is the time that these took to
start: an interpreter and its imports, while the others train. The phases are the launcher's own record.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.one_node import at
from healthctl.demo.training import COMMAND
from healthd.launcher.transition import PHASES
from healthd.trainer.beacon import read_all
from healthd.trainer.pages import BeaconView, prepare_directory

NODES = ("n0", "n1", "n2")
LOST = ("n2", "n1", "n0")  # one after the other; each once in a job, as after a further loss it would return later
PACE_S = 0.05
STEPS_BETWEEN = 20
DEADLINE_S = 120.0
Seconds = dict[str, float]


class ElasticRun:
    """One job, and its losses."""

    def __init__(self, place: Path) -> None:
        self._place, self._events = place, place / "events.jsonl"
        (place / "beacons").mkdir()
        for node in NODES:
            prepare_directory(str(place / "beacons" / node))
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off", "--swap"]
        argv += [f"--nodes={len(NODES)}", "--min-nodes=1", "--return-seconds=0.5", f"--node-names={','.join(NODES)}"]
        argv += [f"--events={self._events}", "--", *COMMAND, "--example=train_elastic", "--steps=1000000"]
        argv += ["--every=1000000", f"--step-seconds={PACE_S}", f"--checkpoints={place / 'checkpoints'}"]
        environ = {
            **os.environ,
            "HEALTHD_BEACON_DIR": f"{place}/beacons/{{node}}",
            "HEALTHD_JOB": f"bench-{os.getpid()}",
        }
        with (place / "log").open("wb") as log:
            self.launcher = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def lose(self, number: int) -> tuple[bool, Seconds, Seconds]:
        """Lose the `number`-th of them, and have it back.

        Returns:
            Whether rank 0 was there, which serves the ranks' store; seconds by phase of the shrink, and of the growth.
        """
        victim = next(view for view in self._training() if view.identity.node == LOST[number])
        began = time.time()
        os.kill(victim.identity.pid, signal.SIGKILL)
        shrunk = self._wait_for("shrunk", number)
        total = shrunk["at"] - began
        returned, grown = self._wait_for("node_returned", number), self._wait_for("grown", number)
        started = grown["at"] - grown["seconds"] - returned["at"]
        return (
            victim.identity.rank == 0,
            {"before": total - shrunk["seconds"], **shrunk["phases"], "in all": total},
            {"before": started, **grown["phases"], "in all": grown["seconds"]},
        )

    def _training(self) -> list[BeaconView]:
        """The ranks' pages, once all of them have trained for a while."""
        end, begun = time.monotonic() + DEADLINE_S, -1
        while time.monotonic() < end:
            views = [view for each in NODES for view in read_all(f"{self._place}/beacons/{each}")[0] if view.alive]
            steps = [view.state.step for view in views]
            if len(views) == len(NODES) and min(steps) >= 0:
                begun = begun if begun >= 0 else min(steps)
                if min(steps) >= begun + STEPS_BETWEEN:
                    return views
            time.sleep(0.002)
        raise SystemExit(f"not all nodes train:\n{(self._place / 'log').read_text()}")

    def _wait_for(self, kind: str, number: int) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            lines = self._events.read_text().splitlines() if self._events.exists() else []
            found = [event for event in map(json.loads, lines) if event["event"] == kind]
            if len(found) > number:
                event: dict[str, Any] = found[number]
                return event
            time.sleep(0.002)
        raise SystemExit(f"no {kind} number {number}:\n{(self._place / 'log').read_text()}")


@contextlib.contextmanager
def job() -> Iterator[ElasticRun]:
    """A job in a place of its own; nothing of it is left."""
    place = Path(tempfile.mkdtemp(prefix="bench-elastic-"))
    run = ElasticRun(place)
    try:
        yield run
    finally:
        run.launcher.kill()
        run.launcher.wait()
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/bench-{os.getpid()}", ignore_errors=True)


def tell(words: str, found: list[Seconds]) -> None:
    """One row: medians, and of the whole also the tail."""
    columns = {name: sorted(each[name] for each in found) for name in found[0]}
    medians = " ".join(f"{at(column, 0.5):10.3f}" for column in columns.values())
    total = columns["in all"]
    print(f"{words:<28} {medians} {at(total, 0.95):7.3f} {total[-1]:7.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    found: list[tuple[bool, Seconds, Seconds]] = []
    while len(found) < options.runs:
        with job() as run:
            found += [run.lose(number) for number in range(min(len(LOST), options.runs - len(found)))]
    names = ("before", *PHASES, "in all")
    print(f"{'seconds, median':<28} " + " ".join(f"{name:>10}" for name in names) + f" {'p95':>7} {'worst':>7}")
    for words, first in (("shrink by rank 0's node", True), ("shrink by another node", False)):
        if shrinks := [shrink for was_first, shrink, _ in found if was_first is first]:
            tell(f"{words} ({len(shrinks)})", shrinks)
    tell(f"growth ({len(found)})", [growth for *_, growth in found])


if __name__ == "__main__":
    main()

"""From a fault to the next finished step, where a spare takes the place of the rank that is lost.

    python bench/swap.py [--runs 20]

The example's training on two pretend nodes of this machine, one rank each, in steps of 50 ms, with a spare for every
fault of a run. Seconds count from the fault, or from the order that names the node, to the end of the first step that is
trained after it. "seen" is the time until the launcher knows; the other phases are the launcher's own record.
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
from healthd.trainer.beacon import MailboxOrder, post_order, read_all
from healthd.trainer.pages import BeaconView, prepare_directory

SPARES = 5  # a process each, of 200 MiB
PACE_S = 0.05
DEADLINE_S = 120.0
WAYS = {"killed": "kill -9 of the rank", "frozen": "a frozen rank, an order to abort", "ejected": "an order to eject"}


class SwapRun:
    """One job, and its faults."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._events = place / "events.jsonl"
        self.nodes = [f"n{number}" for number in range(2 + SPARES)]
        (place / "beacons").mkdir()
        for node in self.nodes:
            prepare_directory(str(place / "beacons" / node))
        argv = [sys.executable, "-m", "healthctl.main", "launch", "--backend=local", "--gate=off", "--swap"]
        argv += ["--nodes=2", f"--spares={SPARES}", f"--node-names={','.join(self.nodes)}", f"--events={self._events}"]
        argv += ["--", *COMMAND, "--steps=1000000", "--every=1000000", f"--step-seconds={PACE_S}"]
        argv += [f"--checkpoints={place / 'checkpoints'}", f"--losses={place / 'losses.jsonl'}"]
        environ = {
            **os.environ,
            "HEALTHD_BEACON_DIR": f"{place}/beacons/{{node}}",
            "HEALTHD_JOB": f"bench-{os.getpid()}",
            "HEALTHD_COPY_STEPS": "1",
        }
        with (place / "log").open("wb") as log:
            self.launcher = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)

    def fault(self, way: str, number: int) -> dict[str, float]:
        """Lose rank 1 for the `number`-th time; seconds by phase, and in all."""
        node = self.nodes[1 + number]
        views = self._training_on(node, swaps=number)
        began = time.time()
        if way == "killed":
            os.kill(views[1].identity.pid, signal.SIGKILL)
        else:
            if way == "frozen":
                os.kill(views[1].identity.pid, signal.SIGSTOP)
            kind = "abort" if way == "frozen" else "checkpoint_then_eject"
            for view in views:
                post_order(view.path, MailboxOrder(f"o{number}", kind, "a benchmark", (node,), time.time() + 600))
        swapped = self._wait_for("swapped", number + 1)
        total = swapped["at"] - began
        return {"seen": total - swapped["seconds"], **swapped["phases"], "in all": total}

    def _training_on(self, node: str, swaps: int) -> list[BeaconView]:
        """Both ranks, well under way after the last swap."""
        self._wait_for("swapped", swaps)
        end, begun = time.monotonic() + DEADLINE_S, -1
        while time.monotonic() < end:
            pages = [view for each in self.nodes for view in read_all(f"{self._place}/beacons/{each}")[0] if view.alive]
            views = sorted(pages, key=lambda view: view.identity.rank)
            if len(views) == 2 and views[1].identity.node == node and min(v.state.step for v in views) >= 0:
                begun = begun if begun >= 0 else views[1].state.step
                if views[1].state.step >= begun + 20:
                    return views
            time.sleep(0.002)
        raise SystemExit(f"{node} does not train:\n{(self._place / 'log').read_text()}")

    def _wait_for(self, kind: str, count: int) -> dict[str, Any]:
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            lines = self._events.read_text().splitlines() if self._events.exists() else []
            found = [event for event in map(json.loads, lines) if event["event"] == kind]
            if len(found) >= count:
                return found[count - 1] if count else {}
            time.sleep(0.002)
        raise SystemExit(f"no {kind} number {count}:\n{(self._place / 'log').read_text()}")


@contextlib.contextmanager
def job() -> Iterator[SwapRun]:
    """A job in a place of its own; nothing of it is left."""
    place = Path(tempfile.mkdtemp(prefix="bench-swap-"))
    run = SwapRun(place)
    try:
        yield run
    finally:
        run.launcher.kill()
        run.launcher.wait()
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(f"/dev/shm/gpu-healthd-copies-{os.getuid()}/bench-{os.getpid()}", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    names = ("seen", *PHASES, "in all")
    print(f"{'seconds, median':<36} " + " ".join(f"{name:>10}" for name in names) + f" {'p95':>7} {'worst':>7}")
    for way, words in WAYS.items():
        found: list[dict[str, float]] = []
        while len(found) < options.runs:
            with job() as run:
                found += [run.fault(way, number) for number in range(min(SPARES, options.runs - len(found)))]
        columns = {name: sorted(each[name] for each in found) for name in names}
        medians = " ".join(f"{at(columns[name], 0.5):10.3f}" for name in names)
        total = columns["in all"]
        print(f"{words:<36} {medians} {at(total, 0.95):7.3f} {total[-1]:7.3f}", flush=True)


if __name__ == "__main__":
    main()

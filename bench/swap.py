"""From a fault to the next finished step, where a spare takes the place of the rank that is lost.

    python -m bench.swap [--runs 20]

The example's training on two pretend nodes of this machine, one rank each, in steps of 50 ms, with a spare for every
fault of a run. Seconds count from the fault, or from the order that names the node, to the end of the first step that is
trained after it. "seen" is the time until the launcher knows; the other phases are the launcher's own record.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path

from bench.swap_job import Seconds, SwapJob, print_header, print_seconds, run_job
from healthctl.demo.training import COMMAND
from healthd.launcher.process_groups.generation_transition import PHASES
from healthd.trainer.beacons.beacon import MailboxOrder
from healthd.trainer.beacons.mailbox import post_order

SPARES = 5  # a process each, of 200 MiB
PACE_S = 0.05
STEPS_BETWEEN = 20
WAYS = {"killed": "kill -9 of the rank", "frozen": "a frozen rank, an order to abort", "ejected": "an order to eject"}


class SwapRun(SwapJob):
    """One job, and its faults."""

    def __init__(self, place: Path) -> None:
        nodes = [f"n{number}" for number in range(2 + SPARES)]
        command = [*COMMAND, "--steps=1000000", "--every=1000000", f"--step-seconds={PACE_S}"]
        command += [f"--checkpoints={place / 'checkpoints'}", f"--losses={place / 'losses.jsonl'}"]
        super().__init__(place, nodes, ["--nodes=2", f"--spares={SPARES}"], command, {"HEALTHD_COPY_STEPS": "1"})

    def fault(self, way: str, number: int) -> Seconds:
        """Lose rank 1 for the `number`-th time; seconds by phase, and in all."""
        views = self.wait_trained(2, STEPS_BETWEEN)
        node = views[1].identity.node  # of whichever spare was ready first
        began = time.time()
        if way == "killed":
            os.kill(views[1].identity.pid, signal.SIGKILL)
        else:
            if way == "frozen":
                os.kill(views[1].identity.pid, signal.SIGSTOP)
            kind = "abort" if way == "frozen" else "checkpoint_then_eject"
            for view in views:
                post_order(view.path, MailboxOrder(f"o{number}", kind, "a benchmark", (node,), time.time() + 600))
        swapped = self.wait_for("swapped", number)
        total = swapped["at"] - began
        return {"seen": total - swapped["seconds"], **swapped["phases"], "in all": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    print_header(("seen", *PHASES))
    for way, words in WAYS.items():
        found: list[Seconds] = []
        while len(found) < options.runs:
            with run_job(SwapRun) as run:
                found += [run.fault(way, number) for number in range(min(SPARES, options.runs - len(found)))]
        print_seconds(words, found)


if __name__ == "__main__":
    main()

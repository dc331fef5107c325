"""From the loss of a node without a spare to the next step with fewer, and from its return to the next step with more.

    python -m bench.elastic [--runs 20]

The elastic example on three pretend nodes of this machine, one rank each, in steps of 50 ms. A shrink counts from kill -9 to
the end of the first step that is trained after it; "before" is the time until the launcher knows. A growth counts from when
the ranks are asked to pause, as the processes of the node that has returned wait; "before" is the time that these took to
start: an interpreter and its imports, while the others train. The phases are the launcher's own record.
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

NODES = ("n0", "n1", "n2")
LOST = ("n2", "n1", "n0")  # one after the other; each once in a job, as after a further loss it would return later
PACE_S = 0.05
STEPS_BETWEEN = 20


class ElasticRun(SwapJob):
    """One job, and its losses."""

    def __init__(self, place: Path) -> None:
        options = [f"--nodes={len(NODES)}", "--min-nodes=1", "--return-seconds=0.5"]
        command = [*COMMAND, "--example=train_elastic", "--steps=1000000", "--every=1000000"]
        command += [f"--step-seconds={PACE_S}", f"--checkpoints={place / 'checkpoints'}"]
        super().__init__(place, NODES, options, command)

    def lose(self, number: int) -> tuple[bool, Seconds, Seconds]:
        """Lose the `number`-th of them, and have it back.

        Returns:
            Whether rank 0 was there, which serves the ranks' store; seconds by phase of the shrink, and of the growth.
        """
        victim = next(
            view for view in self.wait_trained(len(NODES), STEPS_BETWEEN) if view.identity.node == LOST[number]
        )
        began = time.time()
        os.kill(victim.identity.pid, signal.SIGKILL)
        shrunk = self.wait_for("shrunk", number)
        total = shrunk["at"] - began
        returned, grown = self.wait_for("node_returned", number), self.wait_for("grown", number)
        started = grown["at"] - grown["seconds"] - returned["at"]
        return (
            victim.identity.rank == 0,
            {"before": total - shrunk["seconds"], **shrunk["phases"], "in all": total},
            {"before": started, **grown["phases"], "in all": grown["seconds"]},
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    found: list[tuple[bool, Seconds, Seconds]] = []
    while len(found) < options.runs:
        with run_job(ElasticRun) as run:
            found += [run.lose(number) for number in range(min(len(LOST), options.runs - len(found)))]
    print_header(("before", *PHASES))
    for words, first in (("shrink by rank 0's node", True), ("shrink by another node", False)):
        if shrinks := [shrink for was_first, shrink, _ in found if was_first is first]:
            print_seconds(f"{words} ({len(shrinks)})", shrinks)
    print_seconds(f"growth ({len(found)})", [growth for *_, growth in found])


if __name__ == "__main__":
    main()

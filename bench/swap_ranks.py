"""From a fault to the next finished step in a job of many ranks, where spares take the places of those that are lost.

    python -m bench.swap_ranks [--jobs 5] [--nodes 32] [--ranks-per-node 2] [--step-seconds 0.2]

The ranks are processes without torch that compute by sleeping (`bench.ranks.swapped_rank`); launcher, rendezvous, beacons,
guard and orders are the real ones. Each job has one fault of each kind and as many spare nodes as that takes. Seconds count
from the fault, or from the order that names the node, to the end of the first step trained after it; "seen" is the time until
the launcher knows of the last loss; the other phases are the launcher's own record.

Exits with 1 if a finished step was lost or trained twice, or a loss differs in one bit from that of an undisturbed run.
"""

from __future__ import annotations

import argparse
import functools
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.measured_node import select_quantile
from bench.ranks.step_records import list_differences, read_records
from bench.swap_job import DEADLINE_S, Seconds, SwapJob, print_header, print_seconds, run_job
from healthd.launcher.process_groups.generation_transition import PHASES
from healthd.trainer.beacons.beacon import MailboxOrder
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import BeaconView

SPARE_NODES = 4  # each fault takes the processes of one at most
STEPS_BETWEEN = 5
LOOK_S = 0.01  # at the events: a look costs the ranks' cores
WAYS = {
    "killed": "kill -9 of a rank",
    "first": "kill -9 of rank 0",
    "node": "kill -9 of all ranks of a node",
    "frozen": "a frozen rank, an order to abort",
}
DIFFERENCES_SHOWN = 10


class JobSize(NamedTuple):
    """How many ranks, and how long they take for a step."""

    nodes: int
    ranks_per_node: int
    step_seconds: float

    @property
    def ranks(self) -> int:
        """In all."""
        return self.nodes * self.ranks_per_node


class ManyRanks(SwapJob):
    """One job, and its faults."""

    def __init__(self, size: JobSize, place: Path) -> None:
        self._size = size
        nodes = [f"n{number}" for number in range(size.nodes + SPARE_NODES)]
        options = [f"--nodes={size.nodes}", f"--ranks-per-node={size.ranks_per_node}", f"--spares={SPARE_NODES}"]
        command = [sys.executable, "-m", "bench.ranks.swapped_rank", f"--place={place}"]
        super().__init__(place, nodes, options, [*command, f"--step-seconds={size.step_seconds}"])

    def fault(self, way: str) -> Seconds:
        """One fault; seconds by phase, and in all."""
        views = self.wait_trained(self._size.ranks, STEPS_BETWEEN)
        replaced = len(self.read_events("rank_replaced"))
        victims = self._choose_victims(way, views)
        began = time.time()
        for victim in victims:
            os.kill(victim.identity.pid, signal.SIGSTOP if way == "frozen" else signal.SIGKILL)
        if way == "frozen":
            node = victims[0].identity.node
            for view in views:
                post_order(view.path, MailboxOrder("o1", "abort", "a benchmark", (node,), began + 600))
            victims = [view for view in views if view.identity.node == node]
        return self._measure_swap(began, replaced + len(victims))

    def read_memory(self) -> list[float]:
        """MiB of each rank that are not shared with others, or its part of those that are."""
        pattern = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)
        rollups = [Path(f"/proc/{view.identity.pid}/smaps_rollup").read_text() for view in self.read_pages()]
        return sorted(int(found[1]) / 1024 for found in map(pattern.search, rollups) if found)

    def _choose_victims(self, way: str, views: Sequence[BeaconView]) -> list[BeaconView]:
        if way == "first":
            return [views[0]]
        last = [view for view in views if view.identity.node == views[-1].identity.node]
        return last if way == "node" else [views[len(views) // (2 if way == "killed" else 4)]]

    def _measure_swap(self, began: float, replaced: int) -> Seconds:
        """Until so many ranks were replaced in all, and the newest generation has trained."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            losses, swaps = self.read_events("rank_replaced"), self.read_events("swapped")
            if len(losses) >= replaced and swaps and swaps[-1]["generation"] == losses[-1]["generation"]:
                if swaps[-1]["lost"]:
                    raise self.failure(f"{swaps[-1]['lost']} finished steps are lost")
                total = swaps[-1]["at"] - began
                return {"seen": total - swaps[-1]["seconds"], **swaps[-1]["phases"], "in all": total}
            time.sleep(LOOK_S)
        raise self.failure(f"fewer than {replaced} ranks were replaced, or they do not train")


def run_faults(size: JobSize) -> tuple[dict[str, Seconds], list[float], list[str]]:
    """One job with a fault of each kind: their seconds, MiB of each rank, and how its steps differ from an undisturbed run's."""
    with run_job(functools.partial(ManyRanks, size)) as job:
        found = {way: job.fault(way) for way in WAYS}
        job.wait_trained(size.ranks, STEPS_BETWEEN)
        memory = job.read_memory()
        records = read_records(job.place / "steps")
    steps = max((record.step for record in records), default=-1) + 1
    print(f"{steps} steps, {len(records)} records, {sum(memory):.0f} MiB in all", file=sys.stderr, flush=True)
    return found, memory, list_differences(records, size.ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=32)
    parser.add_argument("--ranks-per-node", type=int, default=2)
    parser.add_argument("--step-seconds", type=float, default=0.2)
    options = parser.parse_args()
    size = JobSize(options.nodes, options.ranks_per_node, options.step_seconds)
    runs = [run_faults(size) for _ in range(options.jobs)]
    print(f"{size.ranks} ranks, load {os.getloadavg()[0]:.1f}, MiB a rank {select_quantile(runs[-1][1], 0.5):.1f}")
    print_header(("seen", *PHASES))
    for way, words in WAYS.items():
        print_seconds(words, [found[way] for found, *_ in runs])
    if differences := [each for *_, found in runs for each in found]:
        sys.exit("\n".join(differences[:DIFFERENCES_SHOWN]))


if __name__ == "__main__":
    main()

"""A job of pretended ranks on real healthds: real beacons, made-up times, and one rank that is slow."""

from __future__ import annotations

import threading

from healthd_node import Node

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.rank_placement import RankGpu
from healthd.trainer.beacons.step_ring import EntryMeasurements

PER_NODE, SLOW = 4, 5  # the second rank of the second node
FORWARD_BACKWARD = 0b110


class Job(threading.Thread):
    """One step after the other on all ranks at once; what they say of their sections is made up, and one is slow."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__(daemon=True)
        world = PER_NODE * len(nodes)
        self.beacons = [
            Beacon.create(
                str(nodes[rank // PER_NODE].beacons),
                RankPlacement(
                    "train", 1, rank, world, rank % PER_NODE, nodes[rank // PER_NODE].name, gpu=RankGpu(f"GPU-{rank}")
                ),
            )
            for rank in range(world)
        ]
        self.end = threading.Event()

    def run(self) -> None:
        step = 0
        while not self.end.is_set():
            for beacon in self.beacons:
                beacon.begin_step(step)
            self.end.wait(0.01)
            for rank, beacon in enumerate(self.beacons):
                own = (1.3 if rank == SLOW else 1.0) * (1 + 0.03 * ((step * 7 + rank * 3) % 11 - 5) / 5)
                beacon.end_measured_step(
                    EntryMeasurements(FORWARD_BACKWARD, (0.0, 0.0, 0.3 * own, 0.7 * own, *[0.0] * 4))
                )
            step += 1

    def close(self) -> None:
        self.end.set()
        self.join()
        for beacon in self.beacons:
            beacon.close()

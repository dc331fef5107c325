"""One rank of a job without GPUs: python silent_rank.py PAGES NODE RANK WORLD MEETING HANGS_AT

All ranks meet in every step, by one byte each in the file MEETING. At step HANGS_AT the last rank stays in its backward
pass for good and does nothing.
"""

from __future__ import annotations

import mmap
import sys
import time
from pathlib import Path

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.step_ring import LOSS, EntryMeasurements, StepSection


def main() -> None:
    """Train until killed."""
    pages, node, rank, world, meeting, hangs_at = sys.argv[1:]
    beacon = Beacon.create(pages, RankPlacement("silent", 0, int(rank), int(world), int(rank), node))
    with Path(meeting).open("r+b") as file:
        steps = mmap.mmap(file.fileno(), int(world))
    number = 0
    while True:
        beacon.begin_step(number)
        beacon.section(StepSection.BACKWARD)
        time.sleep(0.02)
        while number == int(hangs_at) and int(rank) == int(world) - 1:
            time.sleep(3600)
        beacon.section(StepSection.COMMUNICATION)
        steps[int(rank)] = (number + 1) % 256
        while any(0 < (number + 1 - each) % 256 < 128 for each in steps[:]):
            time.sleep(0.002)
        beacon.end_measured_step(EntryMeasurements(LOSS, loss=2.0))
        number += 1


if __name__ == "__main__":
    main()

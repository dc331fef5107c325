"""A job's own pages before a real healthd: what it says of training that goes wrong, and that it takes it back."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from healthd_node import Node, eventually

from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.step_ring import LOSS, EntryMeasurements, StepSection

SOON = {
    "stall_floor_s": 2,
    "unsure_floor_s": 2,
    "warm_up_floor_s": 2,
    "stall_times_longest": 0,
    "stall_spreads": 0,
    "loss_clear_steps": 3,
}


class Job(threading.Thread):
    """Two ranks in this process; rank 1 stays in its data once told to."""

    def __init__(self, directory: Path, node: str) -> None:
        super().__init__(daemon=True)
        self.beacons = [Beacon.create(str(directory), RankPlacement("train", 0, r, 2, r, node)) for r in range(2)]
        self.loss, self.hang, self.end = 2.0, False, False

    def run(self) -> None:
        number = 0
        while not self.end:
            for beacon, section in zip(self.beacons, (StepSection.COMMUNICATION, StepSection.DATA), strict=True):
                beacon.begin_step(number)
                beacon.section(section)
            time.sleep(0.02)
            while self.hang and not self.end:
                time.sleep(0.02)
            for beacon in self.beacons:
                beacon.end_measured_step(EntryMeasurements(LOSS, loss=self.loss))
            number += 1

    def close(self) -> None:
        self.end = True
        self.join()
        for beacon in self.beacons:
            beacon.close()


@pytest.fixture
def job_on(make_node: Callable[..., Node], tmp_path: Path) -> Iterator[tuple[Node, Job]]:
    node = make_node(kernel_log=tmp_path / "kern.log", thresholds={"training": SOON})
    node.start()
    eventually(node.beacons.is_dir, "the beacon directory")
    job = Job(node.beacons, node.name)
    job.start()
    yield node, job
    job.close()


def test_a_hang_and_a_loss_that_is_none_are_found_and_taken_back(job_on: tuple[Node, Job]) -> None:
    node, job = job_on
    job.loss = math.nan
    eventually(lambda: "training/loss_not_finite" in node.findings(), "the loss")
    job.loss = 2.0
    eventually(lambda: "training/loss_not_finite" not in node.findings(), "the loss is well again")
    job.hang = True
    found = eventually(lambda: node.findings().get("training/stalled"), "the stall")
    evidence = found["evidence"]
    assert (evidence["rank"], evidence["section"], evidence["not_arrived"], evidence["missing"]) == (
        1,
        "data",
        "1",
        "here",
    )
    assert found["severity"] == "warning"
    job.hang = False
    eventually(lambda: "training/stalled" not in node.findings(), "the job makes progress again")

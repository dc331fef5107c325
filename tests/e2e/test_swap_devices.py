"""A swap on real GPUs over NCCL; the same job and the same checks run on the CPU over gloo.

What only GPUs can show is listed in docs/reference/gpu-checks.md.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from test_swap import STRIKE, SwapJob

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
STEPS = 24
SCRIPT = Path(__file__).with_name("device_swap_job.py")
KEPT_BYTES_MAX = 1 << 20  # more device memory in a later generation than in the first
needs_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs 2 GPUs")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpus)]


class DeviceJob(SwapJob):
    """Two ranks and two spares, each on a pretend node; the spares share the second rank's GPU."""

    command = (sys.executable, str(SCRIPT))

    def launch(self, device: str, model: str, *options: str) -> DeviceJob:
        more = (f"--device={device}", f"--model={model}", f"--notes={self.place / 'notes'}")
        self.start("--nodes=2", *options, steps=STEPS, every=1000, pace=0.05, more=more)
        return self

    def notes(self) -> list[dict[str, Any]]:
        """What each process found at the first step of each generation, by generation and rank."""
        found = [json.loads(line) for line in (self.place / "notes").read_text().splitlines()]
        return sorted(found, key=lambda each: (each["generation"], each["rank"]))


Launch = Callable[[str, str], DeviceJob]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    made = []

    def launch(device: str, model: str) -> DeviceJob:
        made.append(DeviceJob(tmp_path, ("n0", "n1", "n2", "n3")))
        return made[-1].launch(device, model, "--spares=2", "--swap")

    yield launch
    for job in made:
        job.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], dict[int, str]]:
    """The losses of a run in which nothing happens, by device and model; each is trained once."""

    @functools.cache
    def train(device: str, model: str) -> dict[int, str]:
        job = DeviceJob(tmp_path_factory.mktemp("undisturbed"), ("n0", "n1")).launch(device, model)
        assert job.finish() == 0, job.log()
        return job.losses()

    return train


def kill(job: DeviceJob) -> None:
    """The rank's process dies; the other one waits for it in a collective."""
    os.kill(job.ranks(world=2, step=STRIKE)[1].identity.pid, signal.SIGKILL)


def freeze(job: DeviceJob) -> None:
    """The rank stops in the middle of a step, and an order gives its node up: nothing but an abort frees the other one."""
    ranks = job.ranks(world=2, step=STRIKE)
    os.kill(ranks[1].identity.pid, signal.SIGSTOP)
    job.order(ranks, "abort", condemned="n1")


@pytest.mark.parametrize("model", ["ddp", "fsdp"])
@pytest.mark.parametrize("strike", [kill, freeze])
@pytest.mark.parametrize("device", DEVICES)
def test_a_rank_on_a_device_is_replaced(
    launch: Launch,
    undisturbed: Callable[[str, str], dict[int, str]],
    device: str,
    strike: Callable[[DeviceJob], None],
    model: str,
) -> None:
    job = launch(device, model)
    strike(job)
    assert job.finish() == 0, job.log()
    assert len(job.events("attempt_started")) == 1, job.log()
    assert [event["lost"] for event in job.events("swapped")] == [0], job.log()
    assert job.losses() == undisturbed(device, model)

    survivor, lost, again, spare = job.notes()
    assert [each["device"] for each in job.notes()] == [device] * 4
    assert survivor["pid"] == again["pid"]
    assert spare["pid"] != lost["pid"]
    assert (again["captures"], again["compilations"]) == (1, survivor["compilations"]), "made again"
    assert again["old_models"] == 0, "the model of the old process group is still there"
    assert again["allocated"] <= survivor["allocated"] + KEPT_BYTES_MAX, "its memory is"

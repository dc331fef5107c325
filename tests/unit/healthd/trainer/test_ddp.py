"""Against the real DistributedDataParallel, on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from healthd.trainer.adapters.ddp import tell_communication
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard

pytestmark = pytest.mark.torch


@pytest.fixture
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def gradients(model: nn.Module) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model(torch.randn(4, 8)).square().sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))


def test_the_wait_for_other_ranks_is_no_part_of_the_backward_pass(group: None, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = RankPlacement("j", 1, 0, 1, 0, "n1")
    beacon = Beacon.create(str(tmp_path), place)
    guard = Guard(place, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0.0)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.0001)
    tell_communication(model, guard)

    with guard.step(0) as s:
        with s.section("backward"):
            told = gradients(model)
        assert read_page(beacon.path).section_name == ""

    (step,) = read_page(beacon.path).steps()
    assert set(step.sections) == {"backward", "communication"}
    assert all(map(torch.equal, told, gradients(network())))
    beacon.close()

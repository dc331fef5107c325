"""Which ranks a model's gradients reach, over a process group that is only pretended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from healthd.trainer.adapters.fsdp import ranks_reached, require_all_ranks

pytestmark = pytest.mark.torch


@pytest.fixture
def four_ranks() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield
    dist.destroy_process_group()


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_sharded_over_all_ranks(four_ranks: None, shape: tuple[int, ...]) -> None:
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards")[-len(shape) :])
    wrapped = fully_shard(model(), mesh=mesh)
    require_all_ranks(wrapped)
    assert ranks_reached(wrapped) == {0, 1, 2, 3}


def test_sharded_within_a_node_only(four_ranks: None) -> None:
    wrapped = fully_shard(model(), mesh=DeviceMesh("cpu", torch.tensor([0, 1])))
    with pytest.raises(ValueError, match=r"rank 2, 3: .* with them"):
        require_all_ranks(wrapped)


def test_ddp_over_all_ranks_and_over_some(four_ranks: None) -> None:
    require_all_ranks(nn.parallel.DistributedDataParallel(model()))
    some = dist.new_group([0, 1, 2])
    with pytest.raises(ValueError, match=r"rank 3: .* with it;"):
        require_all_ranks(nn.parallel.DistributedDataParallel(model(), process_group=some))


def test_a_model_that_nothing_wraps(four_ranks: None) -> None:
    with pytest.raises(ValueError, match="rank 1, 2, 3"):
        require_all_ranks(model())


def test_without_a_process_group_there_is_nobody_to_reach() -> None:
    require_all_ranks(model())

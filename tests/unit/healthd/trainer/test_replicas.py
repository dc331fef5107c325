"""Whether one rank's copy of the state is enough for a job of another size, and how it is loaded there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from healthd.trainer.adapters.pytorch import Counters, TrainingState
from healthd.trainer.adapters.pytorch_peers import PeerCopies
from healthd.trainer.adapters.pytorch_replicas import Trained, trained, why_not_replicated

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)


def said(model: nn.Module, **per_rank: Counters) -> Trained:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return trained(TrainingState(model, optimizer, per_rank=per_rank).collect())


def seeded(seed: int) -> Normed:
    torch.manual_seed(seed)
    return Normed()


def test_ranks_that_hold_the_same_parameters_are_replicas_whatever_their_buffers() -> None:
    one, other = seeded(1), seeded(1)
    other.norm.running_mean.fill_(3.0)  # type: ignore[operator]  # a tensor
    assert why_not_replicated([said(one), said(other)]) == ""


def test_ranks_with_different_parameters_hold_parts() -> None:
    assert why_not_replicated([said(seeded(1)), said(seeded(2))]) == "the ranks hold different parts of the state"


def test_what_each_rank_has_for_itself_is_named() -> None:
    assert why_not_replicated([said(seeded(1), place=Counters())] * 2) == "place: each rank has its own"


def test_a_sharded_tensor_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4))
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (1,)))
    assert said(model).why_not == "model.0.weight is sharded over the ranks"


@pytest.mark.parametrize("elastic", [False, True])
def test_only_copies_of_an_elastic_job_that_are_whole_are_loaded_at_another_size(tmp_path: Path, elastic: bool) -> None:  # noqa: FBT001 - a parameter
    model = seeded(1)
    state = TrainingState(model, torch.optim.AdamW(model.parameters()))
    copies = PeerCopies(tmp_path / "m", state, elastic=elastic)
    copies.save(7)
    copies.wait()
    assert bool(copies.why_fixed) is not elastic
    kept = model.linear.weight.detach().clone()
    for path in (tmp_path / "m").iterdir():  # as a rank of another, larger job wrote it
        path.rename(path.with_name(path.name.replace("-of-1-rank-0", "-of-3-rank-2")))
    with torch.no_grad():
        model.linear.weight.zero_()
    assert copies.load() == (8 if elastic else 0)
    assert torch.equal(model.linear.weight, kept) is elastic
    copies.close()


def test_what_the_node_of_a_newcomer_holds_is_not_loaded(tmp_path: Path) -> None:
    state = TrainingState(seeded(1))
    copies = PeerCopies(tmp_path / "m", state, elastic=True)
    copies.save(7)
    copies.close()
    assert PeerCopies(tmp_path / "m", state, elastic=True, newcomer=True).load() == 0
    assert PeerCopies(tmp_path / "m", state, elastic=True).load() == 8

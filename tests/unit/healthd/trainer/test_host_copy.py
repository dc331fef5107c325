"""Training goes on at once after a copy to host memory, and the copy stays as it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from healthd.trainer.adapters import pytorch_host_copy
from healthd.trainer.adapters.pytorch_host_copy import (
    CopyStream,
    CudaCopyStream,
    HostCopy,
    PendingCopy,
    iterate_leaves,
    list_update_storages,
)
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from tests.unit.healthd.trainer.late_stream import LateStream

pytestmark = pytest.mark.torch
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_training_that_goes_on_changes_no_copy(device: str) -> None:
    host = HostCopy()
    weight = torch.zeros(1 << 20, device=device)
    size = 1024 if device == "cuda" else 16
    busy = torch.rand(size, size, device=device)
    places = set()
    for step in range(8):
        for _ in range(20):
            busy = torch.tanh(busy @ busy)  # on a GPU these are still to come when the copy is asked for
        weight.fill_(step)
        copied = host.take({"weight": weight, "nested": [{"busy": busy[0]}]})
        weight.add_(1e6)
        assert torch.equal(copied["weight"], torch.full((1 << 20,), float(step)))
        assert copied["weight"].is_pinned() is (device == "cuda")
        places.add(copied["weight"].data_ptr())
    assert len(places) == 1, "page-locked memory was allocated again"


class Training:
    """A model with a buffer that each forward pass changes, and one step done."""

    def __init__(self, device: str = "cpu") -> None:
        self.model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.batch = torch.ones(8, 64, device=device)
        self.forward()
        self.optimizer.step()

    def forward(self) -> None:
        self.model(self.batch).square().sum().backward()

    def tree(self) -> dict[str, Any]:
        momentum = [self.optimizer.state[each]["momentum_buffer"] for each in self.model.parameters()]
        return {"model": self.model.state_dict(), "momentum": momentum, "step": 7}

    def begin(self, host: HostCopy, stream: CopyStream) -> tuple[PendingCopy, dict[str, Any]]:
        """A copy that has begun, and what it must become."""
        expected = copy.deepcopy(self.tree())
        return host.begin(self.tree(), list_update_storages([self.optimizer]), stream), expected


def assert_equal(found: Any, expected: Any) -> None:
    leaves, wanted = dict(iterate_leaves(found)), dict(iterate_leaves(expected))
    assert leaves.keys() == wanted.keys()
    for path, leaf in leaves.items():
        same = torch.equal(leaf, wanted[path].cpu()) if isinstance(leaf, torch.Tensor) else leaf == wanted[path]
        assert same, path


@pytest.mark.parametrize("device", DEVICES)
def test_a_copy_beside_the_next_step_is_of_the_state_before_it(device: str) -> None:
    training, host = Training(device), HostCopy()
    stream = CudaCopyStream() if device == "cuda" else LateStream()
    for _ in range(4):
        pending, expected = training.begin(host, stream)
        training.forward()
        pending.order_before_update()
        training.optimizer.step()
        assert_equal(pending.wait(), expected)


def test_a_copy_that_is_whole_before_the_update_needs_no_order() -> None:
    training = Training()
    pending, expected = training.begin(HostCopy(), LateStream())
    found = pending.wait()
    pending.order_before_update()
    training.optimizer.step()
    assert_equal(found, expected)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_state_that_changes_before_the_update_is_no_copy(*, ordered: bool) -> None:
    """Such as weights that are clamped after the copy has begun."""
    training = Training()
    pending, _ = training.begin(HostCopy(), LateStream())
    with torch.no_grad():
        training.model[0].weight.clamp_(-0.01, 0.01)
    if ordered:
        pending.order_before_update()
    with pytest.raises(CheckpointError, match="changed in place"):
        pending.wait()


def test_an_update_inside_a_cuda_graph_makes_the_copy_void(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replays change the state, and call nobody."""
    pending, _ = Training().begin(HostCopy(), LateStream())
    monkeypatch.setattr(pytorch_host_copy, "is_capturing_graph", lambda: True)
    pending.order_before_update()
    with pytest.raises(CheckpointError, match="CUDA graph"):
        pending.wait()

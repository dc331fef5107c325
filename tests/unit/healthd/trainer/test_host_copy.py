"""Training goes on at once after a copy to host memory, and the copy stays as it was."""

from __future__ import annotations

import pytest
import torch

from healthd.trainer.adapters.pytorch_host_copy import HostCopy

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

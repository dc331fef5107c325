"""Sections and numbers from a real GPU; the one test without it shows that host tensors are none of its business."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from healthd.trainer.adapters.cuda import Cuda
from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, read_page
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard

pytestmark = pytest.mark.torch
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_what_lies_on_the_host_is_not_handed_over() -> None:
    assert Cuda().hand_over(torch.tensor(1.0)) is None
    assert Cuda().hand_over(1.0) is None


@pytest.fixture
def no_wait() -> Iterator[None]:
    """Whoever waits for the GPU gets an exception from torch."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.usefixtures("no_wait")
def test_a_gpu_times_its_own_sections_and_is_never_waited_for(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = RankPlacement("j", 1, 0, 1, 0, "n1")
    beacon = Beacon.create(str(tmp_path), place)
    guard = Guard(place, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0.0)
    square = torch.full((2048, 2048), 1e-3, device="cuda")
    tokens = torch.tensor(4096, device="cuda")
    with guard:
        for step in range(20):
            with guard.step(step) as s:
                with s.section("forward"):
                    loss = (square @ square).mean()
                with s.section("backward"):
                    for _ in range(4):
                        square @ square
                s.report(loss=loss, tokens=tokens)
                loss.zero_()
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()

    view = read_page(beacon.path)
    assert view.identity.gpu_uuid.startswith("GPU-")
    for step in view.steps():
        assert (step.on_device, step.awaited) == (True, False)
        assert 0 < step.sections["forward"] < step.sections["backward"]
        assert step.loss == pytest.approx(2048 * 1e-6, rel=1e-3)
        assert step.tokens == 4096
    beacon.close()

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from preflight.check_context import Device
from preflight.checks import nccl_choices

pytestmark = pytest.mark.torch

GPU = Device(name="cuda:3", torch_name="cuda:3", index=3, label="GPU 3", uuid="GPU-fake-0003")


def test_nvswitches_are_known_by_a_fabric_that_the_gpu_has_joined(
    driver_says: Callable[[Sequence[str]], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert nccl_choices._has_fabric(GPU)
    for state in (0, 2):  # none, and joining
        driver_says([f"fabric_state {state}"])
        assert not nccl_choices._has_fabric(GPU)
    monkeypatch.setenv("HEALTHD_NVML_LIBRARY", str(tmp_path / "none.so"))
    assert not nccl_choices._has_fabric(GPU)


def test_without_a_driver_there_is_no_multicast() -> None:
    assert not nccl_choices._has_multicast(GPU)

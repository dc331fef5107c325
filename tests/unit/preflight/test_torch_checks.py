from __future__ import annotations

import pytest
import torch

from preflight.check_context import Device
from preflight.execution.worker import WorkerLoop
from preflight.results import Outcome
from preflight.worker_messages import Answer, AssignRequest, DeviceAssignment, DeviceRefused

pytestmark = pytest.mark.torch

SMALL = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory and processor", memory_bytes=1 << 20)


def quiet(_: str) -> None:
    pass


def test_a_gpu_that_cuda_cannot_use_is_refused_for_cudas_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def init() -> None:
        raise RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized")

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", init)
    for name in ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
    threads, answers = torch.get_num_threads(), list[Answer]()
    seat = DeviceAssignment(index=0, name="cuda:0", torch_name="cuda:0", visible="GPU-1", threads=threads)
    WorkerLoop(answers.append).answer(AssignRequest(seat=seat))
    (refused,) = answers
    assert isinstance(refused, DeviceRefused)
    assert (refused.outcome, refused.misconfigured) == (Outcome.NOT_RUN, True)
    assert "Error 802: system not yet initialized" in refused.reason

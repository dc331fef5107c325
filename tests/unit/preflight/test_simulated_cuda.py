"""Every branch of the checks that is for GPUs, on a simulated `cuda`: it runs, uses only its device, and finds each fault."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from preflight.results import Outcome  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_checks import DEVICE_TESTS, FAULTS, run_check, shrink_checks  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import CudaState, DeviceMapping, install_cuda  # noqa: E402 - torch is optional

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaState]:
    state = install_cuda(monkeypatch)
    monkeypatch.setattr("preflight.kernels.gpu_memory_allocation.RESERVE_BYTES_MIN", 24 << 20)
    shrink_checks(monkeypatch)
    with DeviceMapping(state):
        torch.cuda.set_device("cuda:1")
        yield state


def test_the_simulated_cuda_is_strict(cuda: CudaState) -> None:
    here = torch.ones(4, device="cuda:1")
    assert here.device == torch.device("cuda:1")
    assert here.is_cuda
    assert (here + 1)[1:].device == torch.device("cuda:1")
    assert here.cpu().device == torch.device("cpu")
    with pytest.raises(RuntimeError, match="same device"):
        here + torch.ones(4)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device="cuda:7")
    assert cuda.contexts == {1}
    thread = threading.Thread(target=torch.cuda.synchronize)
    thread.start()
    thread.join()
    assert cuda.contexts == {0, 1}, "a thread that selects no device uses GPU 0"


@pytest.mark.parametrize("test", [spec.test for spec in DEVICE_TESTS])
def test_a_healthy_device_passes_and_no_other_is_used(cuda: CudaState, test: str) -> None:
    (result,) = run_check(test)
    assert result.outcome is Outcome.PASS, result.reason
    assert cuda.contexts == {1}


@pytest.mark.parametrize(("test", "fault"), FAULTS)
def test_each_injected_fault_is_found(cuda: CudaState, test: str, fault: str) -> None:
    (result,) = run_check(test, fault)
    assert result.outcome is not Outcome.PASS
    assert cuda.contexts == {1}

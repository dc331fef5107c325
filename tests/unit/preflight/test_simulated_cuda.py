"""Every branch of the checks that is for GPUs, on a simulated `cuda`: it runs, uses only its device, and finds each fault."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch")

from preflight.check_context import Context, Device  # noqa: E402 - torch is optional
from preflight.checks.load_products import LoadSize  # noqa: E402 - torch is optional
from preflight.plan import SPECS, Scope  # noqa: E402 - torch is optional
from preflight.results import Outcome, Result  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import PRODUCT, CudaState, DeviceMapping, install_cuda  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_programs import install_programs  # noqa: E402 - torch is optional

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]
DEVICE = Device(
    name="cuda:1",
    torch_name="cuda:1",
    index=1,
    label=PRODUCT,
    uuid="GPU-1",
    product=PRODUCT,
    memory_bytes=16 << 20,
)


SMALL = {
    "matmul_schedule": {"GPU_SIZE": 128, "GPU_SIZE_OF_UNITS": 128, "GPU_SIZE_OF_SLOW": 128, "GPU_SIZE_MIN": 128},
    "matmul_repeat": {"GPU_REPEATS": 3},
    "special_functions": {"GPU_SIZE": 128, "GPU_SIZE_MIN": 128, "GPU_REPEATS": 3},
    "sustained_load": {"GPU_SIZE": LoadSize("bfloat16", 256, 8)},
    "memory_retention": {"GPU_SIZE": 128, "GPU_COPY_BYTES": 1 << 20},
    "cache_pattern": {"GPU_REPEATS": 3},
    "host_link": {"GPU_BYTES": 1 << 20, "PATIENCE_S": 0.0},
}  # what a processor does in a moment; the branches stay
COMPARED = {"slow", "slow_copy", "slow_one", "one_device"}  # found by comparison with other devices only


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaState]:
    state = install_cuda(monkeypatch)
    install_programs(monkeypatch)
    monkeypatch.setattr("preflight.kernels.gpu_memory_allocation.RESERVE_BYTES_MIN", 24 << 20)
    for module, sizes in SMALL.items():
        for name, value in sizes.items():
            monkeypatch.setattr(f"preflight.checks.{module}.{name}", value)
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


def run_check(test: str, fault: str = "", level: str = "gate") -> list[Result]:
    """The results of one test of one device."""
    module = importlib.import_module(f"preflight.checks.{test}")
    check: Callable[[Context], Iterator[Result]] = getattr(module, f"check_{test}")
    context = Context(device=DEVICE, devices=(DEVICE,), level=level, seconds=0.2, fault=fault, note=lambda _text: None)
    return list(check(context))


DEVICE_TESTS = [spec for spec in SPECS.values() if spec.scope is Scope.DEVICE]


@pytest.mark.parametrize("test", [spec.test for spec in DEVICE_TESTS])
def test_a_healthy_device_passes_and_no_other_is_used(cuda: CudaState, test: str) -> None:
    (result,) = run_check(test)
    assert result.outcome is Outcome.PASS, result.reason
    assert cuda.contexts == {1}


@pytest.mark.parametrize(
    ("test", "fault"), [(spec.test, fault) for spec in DEVICE_TESTS for fault in spec.faults if fault not in COMPARED]
)
def test_each_injected_fault_is_found(cuda: CudaState, test: str, fault: str) -> None:
    (result,) = run_check(test, fault)
    assert result.outcome is not Outcome.PASS
    assert cuda.contexts == {1}

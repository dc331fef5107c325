"""The device tests on a simulated `cuda`, with Triton's kernels interpreted: the branches that a GPU with Triton takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from preflight.kernels import tensor_digests  # noqa: E402 - torch is optional
from preflight.kernels.gpu_memory_allocation import TakenMemory  # noqa: E402 - torch is optional
from preflight.kernels.memory_errors import WORD_BYTES, Piece  # noqa: E402 - torch is optional
from preflight.kernels.on_chip_words import TURNS  # noqa: E402 - torch is optional
from preflight.results import Outcome  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_checks import DEVICE_TESTS, FAULTS, run_check, shrink_checks  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_cuda import CudaState, DeviceMapping, install_cuda  # noqa: E402 - torch is optional

pytestmark = pytest.mark.timeout(120)
PIECES = (8 << 10, 4 << 10)  # words; an interpreted kernel takes a millisecond for a block of 1024
BY_TRITON = {
    "memory_pattern", "memory_bandwidth", "memory_retention", "cache_pattern", "matmul_repeat", "special_functions",
    "sustained_load", "on_chip_memory", "row_hammer",
}  # fmt: skip


def allocate_little(device: str) -> TakenMemory:
    first, second = (torch.empty(words, dtype=torch.int64, device=device) for words in PIECES)
    size = sum(PIECES) * WORD_BYTES
    return TakenMemory([Piece(first), Piece(second, PIECES[0])], size, size)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaState]:
    state = install_cuda(monkeypatch)
    shrink_checks(monkeypatch)
    monkeypatch.setattr("preflight.checks.memory_allocation.allocate_gpu_memory", allocate_little)
    monkeypatch.setattr("preflight.checks.memory_allocation._WARM_WORDS", 2 << 10)
    monkeypatch.setattr("preflight.checks.on_chip_memory.PROGRAMS_OF_SM", 1)
    monkeypatch.setattr("preflight.checks.on_chip_memory.GPU_TURNS", TURNS)
    monkeypatch.setattr("preflight.checks.on_chip_memory.L1_UNKNOWN_BYTES", 4 << 10)
    monkeypatch.setattr("preflight.checks.row_hammer.GROUPS_OF_SM", 1)
    monkeypatch.setattr("preflight.checks.cache_pattern.choose_window_bytes", lambda *_: 32 << 10)
    tensor_digests.explain_missing_triton.cache_clear()
    with DeviceMapping(state):
        torch.cuda.set_device("cuda:1")
        yield state
    tensor_digests.explain_missing_triton.cache_clear()


def test_a_test_that_can_use_triton_does(cuda: CudaState) -> None:
    assert tensor_digests.explain_missing_triton("cuda:1") == ""
    (result,) = run_check("memory_pattern")
    assert not any("Triton" in remark for remark in result.remarks), result.remarks


@pytest.mark.parametrize("test", [spec.test for spec in DEVICE_TESTS if spec.test in BY_TRITON])
def test_a_healthy_device_passes_and_no_other_is_used(cuda: CudaState, test: str) -> None:
    (result,) = run_check(test)
    assert result.outcome is Outcome.PASS, result.reason
    assert cuda.contexts == {1}


@pytest.mark.parametrize(("test", "fault"), [pair for pair in FAULTS if pair[0] in BY_TRITON])
def test_each_injected_fault_is_found(cuda: CudaState, test: str, fault: str) -> None:
    (result,) = run_check(test, fault)
    assert result.outcome is not Outcome.PASS
    assert cuda.contexts == {1}

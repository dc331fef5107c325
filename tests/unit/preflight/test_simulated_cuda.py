"""Every branch of the checks that is for GPUs, on a simulated `cuda`: it runs, uses only its device, and finds each fault."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from preflight.checks.matmul_repeat import WorkHistory  # noqa: E402 - torch is optional
from preflight.checks.matmul_schedule import ProductItem  # noqa: E402 - torch is optional
from preflight.kernels.matmul_products import KINDS, ProductKind  # noqa: E402 - torch is optional
from preflight.results import Outcome, Result  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_checks import (  # noqa: E402 - torch is optional
    DEVICE,
    DEVICE_TESTS,
    FAULTS,
    build_context,
    run_check,
    shrink_checks,
)
from tests.unit.preflight.simulated_cuda import CudaState, DeviceMapping, install_cuda  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_programs import install_programs  # noqa: E402 - torch is optional
from tests.unit.preflight.simulated_rows import install_rows  # noqa: E402 - torch is optional

pytestmark = [pytest.mark.torch, pytest.mark.timeout(120)]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaState]:
    state = install_cuda(monkeypatch)
    install_programs(monkeypatch)
    install_rows(monkeypatch)
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


SCALED = [kind.name for kind in KINDS if kind.block and None not in kind]
NEEDS_TYPES = pytest.mark.skipif(len(SCALED) < 2, reason="torch has both types since 2.8")


def list_refusals(result: Result) -> list[str]:
    return [remark for remark in result.remarks if remark.startswith("the library refuses")]


@NEEDS_TYPES
def test_block_scaled_products_are_computed_verified_and_digested(cuda: CudaState) -> None:
    (result,) = run_check("matmul_repeat", level="standard")
    assert (list_refusals(result), "lacks" in result.evidence) == ([], False)
    for kind in SCALED:
        assert f"{kind} 128 seed" in str(result.evidence["digests"])
        assert f"{kind} 128 double precision: " in str(result.evidence["rounding_used"])


@pytest.mark.parametrize("fault", ["one_output", "all_outputs", "operand", "nan"])
def test_each_fault_is_found_in_block_scaled_products(cuda: CudaState, fault: str) -> None:
    (result,) = run_check("matmul_repeat", fault, "standard")
    assert set(SCALED) <= set(result.reason.rpartition("; also ")[2].split(", "))


def refuse_block_scales(monkeypatch: pytest.MonkeyPatch, error: Exception, computed: int = 0) -> None:
    """`torch._scaled_mm` raises `error` for block scales after so many products."""
    right, calls = torch._scaled_mm, itertools.count()

    def scaled_mm(left: object, other: object, scale: torch.Tensor, *rest: object, **named: object) -> object:
        if scale.numel() > 1 and next(calls) >= computed:
            raise error
        return right(left, other, scale, *rest, **named)

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)


REFUSALS = [
    ValueError("Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8"),
    RuntimeError(
        "scaled_gemm with `torch.float8_e8m0fnu` scales of 1x32 blocks is only supported for CUDA 12.8 and above"
    ),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmulAlgoGetHeuristic`"),
    TypeError("_scaled_mm() received an invalid combination of arguments"),
]


@NEEDS_TYPES
@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error)[:24])
def test_block_scales_that_the_library_refuses_are_a_remark(
    cuda: CudaState, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    refuse_block_scales(monkeypatch, error)
    (result,) = run_check("matmul_repeat", level="standard")
    assert result.outcome is Outcome.PASS
    assert [remark.split(", ")[0] for remark in list_refusals(result)] == [
        f"the library refuses {kind}" for kind in SCALED
    ]


@NEEDS_TYPES
@pytest.mark.parametrize("error", [RuntimeError("CUDA error: misaligned address"), ValueError("another scale")])
def test_block_scales_that_fail_are_no_remark(
    cuda: CudaState, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    refuse_block_scales(monkeypatch, error)
    with pytest.raises(type(error), match=str(error)):
        run_check("matmul_repeat", level="standard")


@NEEDS_TYPES
def test_a_type_that_the_device_computed_before_is_not_refused(
    cuda: CudaState, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 4  # one to try, three repeats
    refuse_block_scales(monkeypatch, REFUSALS[2], computed)
    history = WorkHistory(build_context(level="standard"), DEVICE)
    mxfp8 = next(kind for kind in KINDS if kind.name == "mxfp8")
    history.visit(ProductItem(mxfp8, 128, 1))
    with pytest.raises(RuntimeError, match="mxfp8 128 seed 2: CUDA error: CUBLAS_STATUS_NOT_SUPPORTED"):
        history.visit(ProductItem(mxfp8, 128, 2))
    assert history.lacks == {}


def test_types_that_torch_lacks_are_a_remark(cuda: CudaState, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = (KINDS[0], *(ProductKind(kind, None, torch.bfloat16, 16, None) for kind in ("mxfp8", "nvfp4")))
    monkeypatch.setattr("preflight.checks.matmul_schedule.KINDS", kinds)
    (result,) = run_check("matmul_repeat", level="standard")
    assert result.outcome is Outcome.PASS
    assert [remark.rpartition(": ")[2] for remark in list_refusals(result)] == [
        f"torch {torch.__version__} has no such type"
    ] * 2


def test_the_gate_leaves_block_scaled_products_out(cuda: CudaState) -> None:
    (result,) = run_check("matmul_repeat")
    assert not any(kind in str(result.evidence["digests"]) for kind in ("mxfp8", "nvfp4"))

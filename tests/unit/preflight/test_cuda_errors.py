"""What an error's text says about the machine. The texts are as torch, Triton, cuBLAS and NCCL print them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.execution.cuda_errors import (
    CUBLAS_STATUSES,
    CUDA_ERRORS,
    DEVICE_FAULT,
    DRIVER_NAMES,
    INCONCLUSIVE,
    MISCONFIGURED,
    NOT_RUN,
    CudaError,
    ErrorMeaning,
    find_telling_line,
    judge_error_text,
    judge_exception,
)
from preflight.execution.worker import build_exception_result
from preflight.results import Outcome, Verdict
from preflight.run_verdict import judge_run

TORCH = """CUDA error: {}
Search for `{}' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
# As printed by an aborted process: the error, then a stack trace, so that the last line says nothing.
WATCHDOG = """[rank12]:[E817 17:40:34.227531918 ProcessGroupNCCL.cpp:1515] [PG 0 (default_pg) Rank 12] Process group watchdog thread \
terminated with exception: CUDA error: uncorrectable ECC error encountered
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

Exception raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:43 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x153667acbf86 in /opt/torch/lib/libc10.so)
frame #5: clone + 0x43 (0x7f5aa4225133 in /lib/x86_64-linux-gnu/libc.so.6)
"""
NCCL = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:275, unhandled cuda error (run with NCCL_DEBUG=INFO for "
    "details), NCCL version 2.20.5\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\nCuda failure {}"
)


class AcceleratorError(RuntimeError):
    """As torch's: CUDA's number beside the text."""

    def __init__(self, text: str, error_code: object) -> None:
        super().__init__(text)
        self.error_code = error_code


def spell_as_driver(error: CudaError) -> str:
    """The driver's name of a code: its own, or the runtime's in capitals."""
    own = {number: name for name, number in DRIVER_NAMES.items()}
    letters = error.name.removeprefix("cudaError")
    return own.get(error.number) or "CUDA_ERROR_" + "".join(f"_{c}" if c.isupper() else c.upper() for c in letters)


def test_the_table_has_each_number_and_name_once() -> None:
    assert (
        len({error.number for error in CUDA_ERRORS}) == len({error.name for error in CUDA_ERRORS}) == len(CUDA_ERRORS)
    )
    assert {error.meaning for error in CUDA_ERRORS} == set(ErrorMeaning)
    assert set(DRIVER_NAMES.values()) <= {error.number for error in CUDA_ERRORS}


@pytest.mark.parametrize("error", CUDA_ERRORS, ids=lambda error: error.name)
def test_every_library_names_a_code_and_all_are_read_alike(error: CudaError) -> None:
    texts = (
        TORCH.format(error.words, error.name),
        f"CUDA error: {error.words}",
        f"Triton Error [CUDA]: {error.words}",
        f"CUDA driver error: {spell_as_driver(error)}",
        NCCL.format(f"{error.number} '{error.words}'"),
        NCCL.format(f"{error.number}"),
    )
    assert {judge_error_text(text) for text in texts} == {error.meaning}
    assert judge_exception(AcceleratorError("an error without words", error.number)) is error.meaning


@pytest.mark.parametrize(("status", "meaning"), CUBLAS_STATUSES.items())
def test_a_status_of_cublas_is_read(status: str, meaning: ErrorMeaning) -> None:
    assert judge_exception(RuntimeError(f"CUDA error: {status} when calling `cublasCreate(handle)`")) is meaning


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("CUDA error: uncorrectable ECC error encountered", DEVICE_FAULT),
        ("Triton Error [CUDA]: an illegal memory access was encountered", DEVICE_FAULT),
        ("Triton Error [CUDA]: uncorrectable ECC error encountered", DEVICE_FAULT),
        (
            (
                "node0:71:98 [3] include/alloc.h:102 NCCL WARN Cuda failure 'uncorrectable NVLink error detected during "
                "the execution'"
            ),
            DEVICE_FAULT,
        ),
        (WATCHDOG, DEVICE_FAULT),
        ("NVMLError_GpuIsLost: GPU is lost", DEVICE_FAULT),
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=0, GPU has fallen off the bus.", DEVICE_FAULT),
        ("CUDA error: no kernel image is available for execution on the device", MISCONFIGURED),
        ("Triton Error [CUDA]: device kernel image is invalid", MISCONFIGURED),
        ("ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", MISCONFIGURED),
        (
            (
                "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that "
                "might have already set an error? Error 802: system not yet initialized"
            ),
            MISCONFIGURED,
        ),
        ("The NVIDIA driver on your system is too old (found version 11040).", MISCONFIGURED),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", NOT_RUN),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB", NOT_RUN),
        ("CUDA error: operation not permitted when stream is capturing", INCONCLUSIVE),
        ("CUDA error: device-side assert triggered", INCONCLUSIVE),
        ("CUDA error: unknown error", INCONCLUSIVE),
        ("CUDA error: 12345", INCONCLUSIVE),
        ("out of resource: shared memory, Required: 327680, Hardware limit: 232448", INCONCLUSIVE),
        ("NCCL error: remote process exited or there was a network error, NCCL version 2.27.3", INCONCLUSIVE),
        ("[Errno 1] Operation not permitted: '/dev/shm/x'", INCONCLUSIVE),
        ("[Errno 12] out of memory", INCONCLUSIVE),
        ("", INCONCLUSIVE),
    ],
)
def test_a_text_of_a_library_is_read(text: str, meaning: ErrorMeaning) -> None:
    assert judge_error_text(text) is meaning
    assert judge_exception(RuntimeError(text)) is meaning


def test_of_several_errors_the_conclusive_one_counts() -> None:
    text = "CUDA error: unknown error; earlier: CUDA error: hardware stack error"
    assert judge_error_text(text) is DEVICE_FAULT


@pytest.mark.parametrize("code", [None, "214", 123_456])
def test_without_a_known_number_the_text_of_an_accelerator_error_counts(code: object) -> None:
    assert judge_exception(AcceleratorError("CUDA error: misaligned address", code)) is DEVICE_FAULT


def test_memory_that_is_in_use_is_nobodys_fault() -> None:
    short = type("OutOfMemoryError", (RuntimeError,), {})
    assert judge_exception(short("no number, no words")) is NOT_RUN
    assert judge_exception(MemoryError()) is NOT_RUN


def test_the_line_that_says_why_a_process_aborted_is_found_before_its_stack_trace() -> None:
    assert "uncorrectable ECC error" in find_telling_line(WATCHDOG)
    assert find_telling_line("one\n\n two \n\n") == "two"
    assert find_telling_line(" \n") == ""


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("CUDA error: uncorrectable ECC error encountered", Verdict.FAIL),
        ("CUDA error: system not yet initialized", Verdict.MISCONFIGURED),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Verdict.INCONCLUSIVE),
        ("CUDA error: of ours", Verdict.INCONCLUSIVE),
    ],
)
def test_only_the_devices_own_fault_exits_with_1(text: str, verdict: Verdict) -> None:
    result = build_exception_result("matmul_repeat", RuntimeError(text), "cuda:0")
    found, reasons = judge_run(["matmul_repeat"], [result])
    assert found is verdict
    assert text in reasons[0]


@given(st.text() | st.text(st.sampled_from("CUDAcudaErr_ORfailure []:'=(0123456789\n\\")))
def test_no_text_raises_and_an_unknown_one_is_inconclusive(text: str) -> None:
    assert judge_error_text(f"CUDA error: {text}") in ErrorMeaning
    assert find_telling_line(text) in {"", *(line.strip() for line in text.split("\n"))}


@given(
    st.text(st.characters(codec="ascii"), max_size=40).map(lambda text: text.replace("cuda", "").replace("CUDA", ""))
)
def test_an_error_of_ours_accuses_no_device(text: str) -> None:
    assert build_exception_result("t", ValueError(f"of ours: {text}"), "cuda:0").outcome is Outcome.ERROR

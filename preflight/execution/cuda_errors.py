"""What an error of CUDA says about the machine: one table for torch, Triton, cuBLAS, NCCL and aborted processes. Pure.

Names, numbers and texts are NVIDIA's (CUDA runtime API 13.1, `cudaError_t`; `cublasStatus_t`). Four meanings:

- The device's fault: uncorrectable ECC and NVLink errors, hardware stack errors, a lost GPU. Also illegal addresses and
  instructions, misaligned addresses, invalid program counters and launch failures: elsewhere these are usually bugs of a
  program, but preflight runs a few fixed and tested kernels on fixed data. What other GPUs run correctly with the same software
  is the device's fault here. A library that does not suit the GPU reports that otherwise: no kernel image, unsupported PTX.
- Misconfigured: the software or settings of the machine.
- Not run: the device is in use, or has too little free memory.
- Inconclusive: everything else. That includes a failed assertion in a kernel and a launch that timed out, which say that a
  program was stopped, not by what; `cudaErrorNoDevice`, which hidden, dead and unpermitted devices have in common; and
  CUBLAS_STATUS_EXECUTION_FAILED, behind which CUDA's own error is unknown.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from preflight.results import Outcome


class ErrorMeaning(enum.Enum):
    """What an error says about the machine."""

    DEVICE_FAULT = "the device failed"
    MISCONFIGURED = "misconfigured"
    NOT_RUN = "the device is in use, or has too little free memory"
    INCONCLUSIVE = "inconclusive"

    @property
    def outcome(self) -> Outcome:
        """The outcome of a test that this error ended."""
        return _OUTCOMES[self]

    @property
    def misconfigured(self) -> bool:
        """An operator must fix it first."""
        return self is ErrorMeaning.MISCONFIGURED

    def build_reason(self, words: str) -> str:
        """The reason of a result, from the error's own words."""
        return words if self is ErrorMeaning.INCONCLUSIVE else f"{self.value}: {words}"


DEVICE_FAULT, MISCONFIGURED = ErrorMeaning.DEVICE_FAULT, ErrorMeaning.MISCONFIGURED
NOT_RUN, INCONCLUSIVE = ErrorMeaning.NOT_RUN, ErrorMeaning.INCONCLUSIVE
_OUTCOMES = {
    DEVICE_FAULT: Outcome.FAIL,
    MISCONFIGURED: Outcome.NOT_RUN,
    NOT_RUN: Outcome.NOT_RUN,
    INCONCLUSIVE: Outcome.ERROR,
}


class CudaError(NamedTuple):
    """A code of `cudaError_t` with the text of `cudaGetErrorString`."""

    number: int
    name: str
    words: str
    meaning: ErrorMeaning


CUDA_ERRORS = (
    CudaError(214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered", DEVICE_FAULT),
    CudaError(
        220, "cudaErrorNvlinkUncorrectable", "uncorrectable NVLink error detected during the execution", DEVICE_FAULT
    ),
    CudaError(
        226, "cudaErrorContained", "Invalid access of peer GPU memory over nvlink or a hardware error", DEVICE_FAULT
    ),
    CudaError(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered", DEVICE_FAULT),
    CudaError(714, "cudaErrorHardwareStackError", "hardware stack error", DEVICE_FAULT),
    CudaError(715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered", DEVICE_FAULT),
    CudaError(716, "cudaErrorMisalignedAddress", "misaligned address", DEVICE_FAULT),
    CudaError(
        717, "cudaErrorInvalidAddressSpace", "operation not supported on global/shared address space", DEVICE_FAULT
    ),
    CudaError(718, "cudaErrorInvalidPc", "invalid program counter", DEVICE_FAULT),
    CudaError(719, "cudaErrorLaunchFailure", "unspecified launch failure", DEVICE_FAULT),
    CudaError(53, "cudaErrorPriorLaunchFailure", "unspecified launch failure in prior launch", DEVICE_FAULT),
    CudaError(34, "cudaErrorStubLibrary", "CUDA driver is a stub library", MISCONFIGURED),
    CudaError(
        35, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient for CUDA runtime version", MISCONFIGURED
    ),
    CudaError(
        36, "cudaErrorCallRequiresNewerDriver", "API call is not supported in the installed CUDA driver", MISCONFIGURED
    ),
    CudaError(98, "cudaErrorInvalidDeviceFunction", "invalid device function", MISCONFIGURED),
    CudaError(102, "cudaErrorDeviceNotLicensed", "device doesn't have valid Grid license", MISCONFIGURED),
    CudaError(200, "cudaErrorInvalidKernelImage", "device kernel image is invalid", MISCONFIGURED),
    CudaError(
        209,
        "cudaErrorNoKernelImageForDevice",
        "no kernel image is available for execution on the device",
        MISCONFIGURED,
    ),
    CudaError(218, "cudaErrorInvalidPtx", "a PTX JIT compilation failed", MISCONFIGURED),
    CudaError(221, "cudaErrorJitCompilerNotFound", "PTX JIT compiler library not found", MISCONFIGURED),
    CudaError(
        222,
        "cudaErrorUnsupportedPtxVersion",
        "the provided PTX was compiled with an unsupported toolchain",
        MISCONFIGURED,
    ),
    CudaError(223, "cudaErrorJitCompilationDisabled", "PTX JIT compilation was disabled", MISCONFIGURED),
    CudaError(
        225,
        "cudaErrorUnsupportedDevSideSync",
        "the provided PTX contains unsupported call to cudaDeviceSynchronize",
        MISCONFIGURED,
    ),
    CudaError(300, "cudaErrorInvalidSource", "device kernel image is invalid", MISCONFIGURED),
    CudaError(302, "cudaErrorSharedObjectSymbolNotFound", "shared object symbol not found", MISCONFIGURED),
    CudaError(303, "cudaErrorSharedObjectInitFailed", "shared object initialization failed", MISCONFIGURED),
    CudaError(800, "cudaErrorNotPermitted", "operation not permitted", MISCONFIGURED),
    CudaError(801, "cudaErrorNotSupported", "operation not supported", MISCONFIGURED),
    CudaError(802, "cudaErrorSystemNotReady", "system not yet initialized", MISCONFIGURED),
    CudaError(
        803,
        "cudaErrorSystemDriverMismatch",
        "system has unsupported display driver / cuda driver combination",
        MISCONFIGURED,
    ),
    CudaError(
        804,
        "cudaErrorCompatNotSupportedOnDevice",
        "forward compatibility was attempted on non supported HW",
        MISCONFIGURED,
    ),
    CudaError(
        805,
        "cudaErrorMpsConnectionFailed",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
        MISCONFIGURED,
    ),
    CudaError(
        806,
        "cudaErrorMpsRpcFailure",
        "the remote procedural call between the MPS server and the MPS client failed",
        MISCONFIGURED,
    ),
    CudaError(
        807, "cudaErrorMpsServerNotReady", "MPS server is not ready to accept new MPS client requests", MISCONFIGURED
    ),
    CudaError(
        811,
        "cudaErrorCdpNotSupported",
        "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it",
        MISCONFIGURED,
    ),
    CudaError(
        812,
        "cudaErrorCdpVersionMismatch",
        "unsupported interaction between different versions of CUDA Dynamic Parallelism",
        MISCONFIGURED,
    ),
    CudaError(2, "cudaErrorMemoryAllocation", "out of memory", NOT_RUN),
    CudaError(46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable", NOT_RUN),
    CudaError(
        216, "cudaErrorDeviceAlreadyInUse", "exclusive-thread device already in use by a different thread", NOT_RUN
    ),
    CudaError(
        808,
        "cudaErrorMpsMaxClientsReached",
        "the hardware resources required to create MPS client have been exhausted",
        NOT_RUN,
    ),
    CudaError(
        809,
        "cudaErrorMpsMaxConnectionsReached",
        "the hardware resources required to support device connections have been exhausted",
        NOT_RUN,
    ),
    CudaError(1, "cudaErrorInvalidValue", "invalid argument", INCONCLUSIVE),
    CudaError(3, "cudaErrorInitializationError", "initialization error", INCONCLUSIVE),
    CudaError(4, "cudaErrorCudartUnloading", "driver shutting down", INCONCLUSIVE),
    CudaError(9, "cudaErrorInvalidConfiguration", "invalid configuration argument", INCONCLUSIVE),
    CudaError(13, "cudaErrorInvalidSymbol", "invalid device symbol", INCONCLUSIVE),
    CudaError(16, "cudaErrorInvalidHostPointer", "invalid host pointer", INCONCLUSIVE),
    CudaError(17, "cudaErrorInvalidDevicePointer", "invalid device pointer", INCONCLUSIVE),
    CudaError(21, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy", INCONCLUSIVE),
    CudaError(49, "cudaErrorIncompatibleDriverContext", "incompatible driver context", INCONCLUSIVE),
    CudaError(52, "cudaErrorMissingConfiguration", "__global__ function call is not configured", INCONCLUSIVE),
    CudaError(100, "cudaErrorNoDevice", "no CUDA-capable device is detected", INCONCLUSIVE),
    CudaError(101, "cudaErrorInvalidDevice", "invalid device ordinal", INCONCLUSIVE),
    CudaError(103, "cudaErrorSoftwareValidityNotEstablished", "integrity checks failed", INCONCLUSIVE),
    CudaError(127, "cudaErrorStartupFailure", "startup failure in cuda runtime", INCONCLUSIVE),
    CudaError(201, "cudaErrorDeviceUninitialized", "invalid device context", INCONCLUSIVE),
    CudaError(205, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed", INCONCLUSIVE),
    CudaError(206, "cudaErrorUnmapBufferObjectFailed", "unmapping of buffer object failed", INCONCLUSIVE),
    CudaError(215, "cudaErrorUnsupportedLimit", "limit is not supported on this architecture", INCONCLUSIVE),
    CudaError(
        217, "cudaErrorPeerAccessUnsupported", "peer access is not supported between these two devices", INCONCLUSIVE
    ),
    CudaError(
        224, "cudaErrorUnsupportedExecAffinity", "the provided execution affinity is not supported", INCONCLUSIVE
    ),
    CudaError(301, "cudaErrorFileNotFound", "file not found", INCONCLUSIVE),
    CudaError(304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS", INCONCLUSIVE),
    CudaError(400, "cudaErrorInvalidResourceHandle", "invalid resource handle", INCONCLUSIVE),
    CudaError(401, "cudaErrorIllegalState", "the operation cannot be performed in the present state", INCONCLUSIVE),
    CudaError(402, "cudaErrorLossyQuery", "attempted introspection would be semantically lossy", INCONCLUSIVE),
    CudaError(500, "cudaErrorSymbolNotFound", "named symbol not found", INCONCLUSIVE),
    CudaError(600, "cudaErrorNotReady", "device not ready", INCONCLUSIVE),
    CudaError(701, "cudaErrorLaunchOutOfResources", "too many resources requested for launch", INCONCLUSIVE),
    CudaError(702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated", INCONCLUSIVE),
    CudaError(704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled", INCONCLUSIVE),
    CudaError(705, "cudaErrorPeerAccessNotEnabled", "peer access has not been enabled", INCONCLUSIVE),
    CudaError(708, "cudaErrorSetOnActiveProcess", "cannot set while device is active in this process", INCONCLUSIVE),
    CudaError(709, "cudaErrorContextIsDestroyed", "context is destroyed", INCONCLUSIVE),
    CudaError(710, "cudaErrorAssert", "device-side assert triggered", INCONCLUSIVE),
    CudaError(711, "cudaErrorTooManyPeers", "peer mapping resources exhausted", INCONCLUSIVE),
    CudaError(
        712,
        "cudaErrorHostMemoryAlreadyRegistered",
        "part or all of the requested memory range is already mapped",
        INCONCLUSIVE,
    ),
    CudaError(
        713,
        "cudaErrorHostMemoryNotRegistered",
        "pointer does not correspond to a registered memory region",
        INCONCLUSIVE,
    ),
    CudaError(720, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch", INCONCLUSIVE),
    CudaError(721, "cudaErrorTensorMemoryLeak", "tensor memory not completely freed", INCONCLUSIVE),
    CudaError(810, "cudaErrorMpsClientTerminated", "the MPS client has been terminated by the server", INCONCLUSIVE),
    CudaError(
        900, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing", INCONCLUSIVE
    ),
    CudaError(
        901,
        "cudaErrorStreamCaptureInvalidated",
        "operation failed due to a previous error during capture",
        INCONCLUSIVE,
    ),
    CudaError(
        907,
        "cudaErrorCapturedEvent",
        "operation not permitted on an event last recorded in a capturing stream",
        INCONCLUSIVE,
    ),
    CudaError(909, "cudaErrorTimeout", "wait operation timed out", INCONCLUSIVE),
    CudaError(
        911, "cudaErrorExternalDevice", "an async error has occured in external entity outside of CUDA", INCONCLUSIVE
    ),
    CudaError(
        912,
        "cudaErrorInvalidClusterSize",
        "a kernel launch error has occurred due to cluster misconfiguration",
        INCONCLUSIVE,
    ),
    CudaError(
        913,
        "cudaErrorFunctionNotLoaded",
        "the function handle is not loaded when calling an API that requires a loaded function",
        INCONCLUSIVE,
    ),
    CudaError(
        914,
        "cudaErrorInvalidResourceType",
        "one or more resources passed in are not valid resource types for the operation",
        INCONCLUSIVE,
    ),
    CudaError(
        915,
        "cudaErrorInvalidResourceConfiguration",
        "one or more resources are insufficient or non-applicable for the operation",
        INCONCLUSIVE,
    ),
    CudaError(999, "cudaErrorUnknown", "unknown error", INCONCLUSIVE),
)
# The driver's API has the same numbers; these of its names differ from the runtime's by more than spelling.
DRIVER_NAMES = {
    "CUDA_ERROR_OUT_OF_MEMORY": 2,
    "CUDA_ERROR_NOT_INITIALIZED": 3,
    "CUDA_ERROR_DEINITIALIZED": 4,
    "CUDA_ERROR_DEVICE_UNAVAILABLE": 46,
    "CUDA_ERROR_INVALID_IMAGE": 200,
    "CUDA_ERROR_INVALID_CONTEXT": 201,
    "CUDA_ERROR_MAP_FAILED": 205,
    "CUDA_ERROR_UNMAP_FAILED": 206,
    "CUDA_ERROR_NO_BINARY_FOR_GPU": 209,
    "CUDA_ERROR_CONTEXT_ALREADY_IN_USE": 216,
    "CUDA_ERROR_INVALID_HANDLE": 400,
    "CUDA_ERROR_NOT_FOUND": 500,
    "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE": 708,
    "CUDA_ERROR_LAUNCH_FAILED": 719,
}
CUBLAS_STATUSES = {
    "CUBLAS_STATUS_NOT_INITIALIZED": INCONCLUSIVE,  # too little memory, or an earlier error
    "CUBLAS_STATUS_ALLOC_FAILED": NOT_RUN,
    "CUBLAS_STATUS_INVALID_VALUE": INCONCLUSIVE,
    "CUBLAS_STATUS_ARCH_MISMATCH": MISCONFIGURED,
    "CUBLAS_STATUS_MAPPING_ERROR": INCONCLUSIVE,
    "CUBLAS_STATUS_EXECUTION_FAILED": INCONCLUSIVE,
    "CUBLAS_STATUS_INTERNAL_ERROR": INCONCLUSIVE,
    "CUBLAS_STATUS_NOT_SUPPORTED": INCONCLUSIVE,
    "CUBLAS_STATUS_LICENSE_ERROR": MISCONFIGURED,
}
# Texts that mean the same without "CUDA" beside them: of NVML, the kernel, torch's start, ptxas and Triton.
OTHER_TEXTS = {
    "GPU is lost": DEVICE_FAULT,
    "fallen off the bus": DEVICE_FAULT,
    "uncorrectable ECC error encountered": DEVICE_FAULT,
    "uncorrectable NVLink error detected": DEVICE_FAULT,
    "The NVIDIA driver on your system is too old": MISCONFIGURED,
    "Found no NVIDIA driver on your system": MISCONFIGURED,
    "Torch not compiled with CUDA enabled": MISCONFIGURED,
    "is not defined for option 'gpu-name'": MISCONFIGURED,
    "Failed to find C compiler": MISCONFIGURED,
}

PEER_ACCESS = "cudaErrorContained"  # also what the peers of a killed process get

_BY_NUMBER = {error.number: error.meaning for error in CUDA_ERRORS}
_BY_NAME = {
    **{error.name: error.meaning for error in CUDA_ERRORS},
    **{name: _BY_NUMBER[number] for name, number in DRIVER_NAMES.items()},
    **CUBLAS_STATUSES,
}
_BY_PLAIN_NAME = {name.lower().replace("_", ""): meaning for name, meaning in _BY_NAME.items()}
_BY_WORDS = {error.words.lower(): error.meaning for error in CUDA_ERRORS}
_PEER_WORDS = next(error.words.lower() for error in CUDA_ERRORS if error.name == PEER_ACCESS)
_NAME = re.compile(r"\b(?:cudaError[A-Z]\w*|CUDA_ERROR_\w+|CUBLAS_STATUS_\w+)")
_NUMBER = re.compile(r"\b(?:CUDA (?:driver )?error|Cuda failure|cudaError(?:_t)?)[ :=(]*(\d{1,4})\b", re.IGNORECASE)
# The longest first: "operation not permitted" also begins the texts of errors that mean something else.
_WORDS = re.compile("|".join(map(re.escape, sorted(_BY_WORDS, key=len, reverse=True))))


def judge_exception(error: BaseException) -> ErrorMeaning:
    """What an exception says about the machine. Torch's `AcceleratorError` carries CUDA's number; others have only text."""
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError":
        return NOT_RUN
    number = getattr(error, "error_code", None)
    if kind == "AcceleratorError" and isinstance(number, int) and number in _BY_NUMBER:
        return _BY_NUMBER[number]
    return judge_error_text(str(error))


def judge_error_text(text: str) -> ErrorMeaning:
    """What an error's text says about the machine, of whichever library: by name, by words, by number.

    Words such as "out of memory" count only in a text that mentions CUDA. If a text contains several errors, the first one that
    is conclusive counts.
    """
    found = [meaning for words, meaning in OTHER_TEXTS.items() if words.lower() in text.lower()]
    found += [_BY_PLAIN_NAME[name] for name in _find_plain_names(text) if name in _BY_PLAIN_NAME]
    if "cuda" in text.lower():
        found += [_BY_WORDS[words] for words in _WORDS.findall(text.lower())]
    found += [_BY_NUMBER[int(number)] for number in _NUMBER.findall(text) if int(number) in _BY_NUMBER]
    return next((meaning for meaning in found if meaning is not INCONCLUSIVE), INCONCLUSIVE)


def names_peer_access(text: str) -> bool:
    """Whether the text is that of an access to a peer's memory that failed, possibly because the peer's process had ended."""
    return PEER_ACCESS in text or _PEER_WORDS in text.lower()


def find_telling_line(text: str) -> str:
    """The last line that says something about the machine, otherwise the last line; empty if there is none.

    A C++ program that aborts prints its error first, then a stack trace.
    """
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    telling = [line for line in lines if judge_error_text(line) is not INCONCLUSIVE]
    return (telling or lines or [""])[-1]


def _find_plain_names(text: str) -> list[str]:
    """Names in the form that runtime and driver share: `cudaErrorIllegalAddress` and `CUDA_ERROR_ILLEGAL_ADDRESS`."""
    return [name.lower().replace("_", "") for name in _NAME.findall(text)]

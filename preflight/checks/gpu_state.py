"""What the driver says of each GPU: reachable, no row remap pending or failed, no recovery action asked for."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from preflight.results import Evidence, Outcome, Result

TEST = "gpu_state"
LIBRARY_VARIABLE = "HEALTHD_NVML_LIBRARY"
PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR = "0x10de"
GPU_CLASSES = ("0x0300", "0x0302")  # display controller, 3D controller
RECOVERY_WORDS = {1: "reset the GPU", 2: "reboot the node", 3: "drain peer-to-peer", 4: "drain, then reset"}

Note = Callable[[str], None]


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as read. None where the GPU or the driver doesn't have it; `unread` names what failed to be read."""

    index: int
    uuid: str = ""
    lost: bool = False
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None
    unread: tuple[str, ...] = ()


def faults_of(state: GpuState) -> list[str]:
    """Everything that makes this GPU unfit, each with what to do. Empty for a good one."""
    if state.lost:
        return ["the driver has lost it; reboot the node, replace it if that recurs"]
    faults = []
    if state.remap_failed:
        faults.append("a row could not be remapped; run the field diagnostic, plan replacement")
    if state.remap_pending:
        faults.append("a row remap waits for a GPU reset")
    if state.recovery_action:
        words = RECOVERY_WORDS.get(state.recovery_action, "not described here")
        faults.append(f"the driver asks for recovery action {state.recovery_action} ({words})")
    return faults


def run(fault: str, note: Note) -> Iterator[Result]:
    """One result for each GPU; one 'not applicable' where the machine has neither GPU nor driver."""
    if fault == "hang":
        note("an injected hang")
        time.sleep(3600)
    if fault in ("remap_pending", "lost"):
        yield judge_state(GpuState(index=0, remap_pending=True, lost=fault == "lost"))
        return
    try:
        library = _load(note)
    except _NoAnswerError as error:
        yield error.result
        return
    count = library.nvmlDeviceGetCount()
    if not count:
        yield Result(test=TEST, outcome=Outcome.ERROR, reason="the driver is here but sees no GPU")
    for index in range(count):
        yield judge_state(_read(library, index, note))


def judge_state(state: GpuState) -> Result:
    """The result for one GPU. What could not be read leaves it open."""
    faults = faults_of(state)
    outcome, reason = Outcome.PASS, ""
    if faults:
        outcome, reason = Outcome.FAIL, "; ".join(faults)
    elif state.unread:
        outcome, reason = Outcome.ERROR, f"could not read {', '.join(state.unread)}"
    evidence: Evidence = {"uuid": state.uuid} if state.uuid else {}
    return Result(test=TEST, outcome=outcome, device=f"GPU {state.index}", reason=reason, evidence=evidence)


def gpus_on_bus(devices: Path = PCI_DEVICES) -> int:
    """How many NVIDIA GPUs the PCI bus shows, whatever the driver thinks."""
    return sum(
        _word(device / "vendor") == NVIDIA_VENDOR and _word(device / "class").startswith(GPU_CLASSES)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


class _NoAnswerError(Exception):
    """The driver can't be asked; carries what that means for the test."""

    def __init__(self, outcome: Outcome, reason: str, *, misconfigured: bool = False) -> None:
        super().__init__(reason)
        self.result = Result(test=TEST, outcome=outcome, reason=reason, misconfigured=misconfigured)


def _load(note: Note) -> Any:
    """Load the library and initialise it. Where a library is, a GPU is expected, even if the bus shows none."""
    import pynvml  # noqa: PLC0415 - absent packages are a result, not a crash

    path = os.environ.get(LIBRARY_VARIABLE, "")
    note(f"loading {path or 'the NVML library'}")
    try:
        if path:
            pynvml.nvmlLib = ctypes.CDLL(path)  # a library that is already there pynvml takes as it is
        note("nvmlInit")
        pynvml.nvmlInit()
    except OSError as error:
        reason = f"{LIBRARY_VARIABLE} names a library that cannot be loaded: {error}"
        raise _NoAnswerError(Outcome.NOT_RUN, reason, misconfigured=True) from error
    except pynvml.NVMLError_LibraryNotFound as error:
        raise _no_library(gpus_on_bus()) from error
    except pynvml.NVMLError as error:
        raise _NoAnswerError(Outcome.ERROR, f"the driver does not start: {error}") from error
    return pynvml


def _no_library(on_bus: int) -> _NoAnswerError:
    if on_bus:
        return _NoAnswerError(
            Outcome.ERROR, f"{on_bus} GPUs on the PCI bus, but no NVML library to ask; is a driver installed?"
        )
    return _NoAnswerError(Outcome.NOT_APPLICABLE, "no GPU on the PCI bus, and no NVML library")


def _read(library: Any, index: int, note: Note) -> GpuState:
    unread: list[str] = []

    def ask(name: str, call: Callable[[Any], Any]) -> Any:
        note(f"GPU {index}: {name}")
        try:
            return call(handle)
        except (library.NVMLError_NotSupported, library.NVMLError_FunctionNotFound):
            return None
        except library.NVMLError_GpuIsLost:
            raise
        except library.NVMLError as error:
            unread.append(f"{name} ({error})")
            return None

    try:
        note(f"GPU {index}: handle")
        handle = library.nvmlDeviceGetHandleByIndex(index)
        uuid = ask("UUID", library.nvmlDeviceGetUUID)
        rows = ask("remapped rows", library.nvmlDeviceGetRemappedRows)
        action = ask("recovery action", lambda gpu: _recovery_action(library, gpu))
    except library.NVMLError_GpuIsLost:
        return GpuState(index=index, lost=True)
    except library.NVMLError as error:
        return GpuState(index=index, unread=(f"its handle ({error})",))
    pending, failed = (bool(rows[2]), bool(rows[3])) if rows else (None, None)
    return GpuState(
        index=index,
        uuid=uuid or "",
        remap_pending=pending,
        remap_failed=failed,
        recovery_action=action,
        unread=tuple(unread),
    )


def _recovery_action(library: Any, gpu: Any) -> int:
    value = library.nvmlDeviceGetFieldValues(gpu, [library.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if value.nvmlReturn != library.NVML_SUCCESS:
        raise library.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)

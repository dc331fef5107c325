"""Driver state of each GPU: reachable, no row remap pending or failed, no recovery action requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from preflight.check_context import Context, Note
from preflight.host.allowed_states import ALLOW_VARIABLE, allowed_states
from preflight.host.nvml_library import NoDriverError, count_own_gpus, list_unsupported_codes, load_nvml
from preflight.results import Location, Outcome, Result
from vocabulary.hardware.recovery_requests import RECOVERY_REQUESTS

TEST = "gpu_state"
STATE = "gpus_missing"  # state name in `software`, which remarks that missing GPUs are not tested


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one GPU. None if GPU or driver lack the property.

    `unread` names properties that failed to read, `unsupported` those that this GPU or driver does not have.
    """

    index: int
    uuid: str = ""
    lost: bool = False
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None
    unread: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()


def list_gpu_faults(state: GpuState) -> list[str]:
    """Everything that makes this GPU unfit, each with a fix. Empty for a healthy one."""
    if state.lost:
        return ["the driver has lost the GPU; reboot the node, and replace the GPU if it recurs"]
    faults = []
    if state.remap_failed:
        faults.append("a memory row could not be remapped; run the field diagnostic and plan a replacement")
    if state.remap_pending:
        faults.append("a row remap is pending; reset the GPU")
    if state.recovery_action:
        request = RECOVERY_REQUESTS.get(state.recovery_action)
        words = request.words if request else "an action unknown to this release"
        faults.append(f"the driver asks for {words} (recovery action {state.recovery_action})")
    return faults


def check_gpu_state(context: Context) -> Iterator[Result]:
    """One result per GPU; one 'not applicable' if the machine has neither GPU nor driver."""
    if context.fault:
        yield judge_state(GpuState(index=0, remap_pending=True, lost=context.fault == "lost"))
        return
    try:
        library = load_nvml(context.note)
    except NoDriverError as error:
        yield Result(test=TEST, outcome=error.outcome, reason=error.reason, misconfigured=error.misconfigured)
        return
    count = library.nvmlDeviceGetCount()
    if not count:
        yield Result(test=TEST, outcome=Outcome.ERROR, reason="the driver is loaded but sees no GPU")
    for index in range(count):
        yield judge_state(_read_gpu_state(library, index, context.note))
    if STATE not in allowed_states() and (missing := judge_count(count, count_own_gpus())):
        yield missing


def judge_count(shown: int, ours: int) -> Result | None:
    """The result if the driver shows fewer GPUs than the machine has; None if it shows all, or none (reported elsewhere)."""
    if not 0 < shown < ours:
        return None
    reason = (
        f"the machine has {ours} GPUs, but the driver shows {shown}: look for Xid 79 and RmInitAdapter in the kernel log, then reset or reboot; "
        f"if this is intended, set {ALLOW_VARIABLE}={STATE}"
    )
    return Result(test=TEST, outcome=Outcome.ERROR, reason=reason)


def judge_state(state: GpuState) -> Result:
    """The result for one GPU. An unreadable property makes it inconclusive."""
    faults = list_gpu_faults(state)
    outcome, reason = Outcome.PASS, ""
    if faults:
        outcome, reason = Outcome.FAIL, "; ".join(faults)
    elif state.unread:
        outcome, reason = Outcome.ERROR, f"could not read {', '.join(state.unread)}"
    return Result(
        test=TEST,
        outcome=outcome,
        device=f"GPU {state.index}",
        reason=reason,
        locations=(Location(gpu=state.uuid),) if state.uuid else (),
        remarks=(f"the driver does not report {', '.join(state.unsupported)}",) if state.unsupported else (),
    )


def _read_gpu_state(library: Any, index: int, note: Note) -> GpuState:
    unread: list[str] = []
    unsupported: list[str] = []

    def ask(name: str, call: Callable[[Any], Any]) -> Any:
        note(f"GPU {index}: {name}")
        try:
            return call(handle)
        except library.NVMLError_GpuIsLost:
            raise
        except library.NVMLError as error:
            if error.value in list_unsupported_codes(library):
                unsupported.append(name)
            else:
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
        unsupported=tuple(unsupported),
    )


def _recovery_action(library: Any, gpu: Any) -> int:
    value = library.nvmlDeviceGetFieldValues(gpu, [library.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])[0]
    if value.nvmlReturn != library.NVML_SUCCESS:
        raise library.NVMLError(value.nvmlReturn)
    return int(value.value.uiVal)

"""The sources that the main loop reads itself, in the same form as those of the source child."""

from __future__ import annotations

from collections.abc import Sequence

from healthd.findings.facts import Moment
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.samples.source import SourceReading, SourceState

KERNEL_LOG, NVML = "kernel_log", "nvml"


def make_kernel_log_reading(trouble: str, using: str, at: float) -> SourceReading:
    """Make the kernel log's reading; `trouble` says why it cannot be read, `using` names the transport."""
    state = SourceState.FAILING if trouble else SourceState.PRESENT
    return SourceReading(source=KERNEL_LOG, state=state, at=at, reason=trouble or f"by {using}")


def make_nvml_reading(gpus: GpuMonitor, patience_s: float, now: Moment) -> SourceReading:
    """Make NVML's reading; a sweep is valid for `patience_s`."""
    age_s = None if gpus.swept_at is None else now.monotonic - gpus.swept_at
    if age_s is not None and age_s <= patience_s:
        seconds = gpus.sweep_seconds or 0.0
        at, reason = now.wall - age_s, describe_left_out_gpus(gpus.left_out)
        return SourceReading(source=NVML, state=SourceState.PRESENT, at=at, seconds=seconds, reason=reason)
    reason = gpus.trouble or (f"no sweep for {age_s:.0f} s" if age_s is not None else "")
    state = SourceState.HUNG if gpus.hanging else SourceState.FAILING if reason else SourceState.WAITING
    return SourceReading(source=NVML, state=state, at=now.wall, reason=reason)


def describe_left_out_gpus(left_out: Sequence[int]) -> str:
    """Describe the GPUs that are left out; empty if none is."""
    if not left_out:
        return ""
    numbers = ", ".join(map(str, left_out))
    return f"GPU {numbers} does not answer" if len(left_out) == 1 else f"GPUs {numbers} do not answer"


def list_silent_sources(kernel_log: SourceReading, nvml: SourceReading) -> tuple[str, ...]:
    """Describe which of these sources are silent: without them a node is unknown, never healthy.

    NVML reports nothing about a GPU that is left out.
    """
    silent = []
    if kernel_log.state is not SourceState.PRESENT:
        silent.append("the kernel log" + (f" ({kernel_log.reason})" if kernel_log.reason else ""))
    if nvml.state is not SourceState.PRESENT or nvml.reason:
        silent.append("NVML" + (f" ({nvml.reason})" if nvml.reason else ""))
    return tuple(silent)

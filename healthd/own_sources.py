"""The sources that the main loop itself reads, in the same words as those of the source child."""

from __future__ import annotations

from healthd.facts import Moment
from healthd.gpu_watch import GpuWatch
from healthd.samples.source import SourceReading, SourceState

KERNEL_LOG, NVML = "kernel_log", "nvml"


def kernel_log(trouble: str, using: str, at: float) -> SourceReading:
    """The kernel log; `trouble` says why it cannot be read, `using` by what means it is."""
    state = SourceState.FAILING if trouble else SourceState.PRESENT
    return SourceReading(source=KERNEL_LOG, state=state, at=at, reason=trouble or f"by {using}")


def nvml(gpus: GpuWatch, patience_s: float, now: Moment) -> SourceReading:
    """NVML; a sweep counts for `patience_s`."""
    age_s = None if gpus.swept_at is None else now.monotonic - gpus.swept_at
    if age_s is not None and age_s <= patience_s:
        seconds = gpus.sweep_seconds or 0.0
        return SourceReading(source=NVML, state=SourceState.PRESENT, at=now.wall - age_s, seconds=seconds)
    reason = gpus.trouble or (f"no sweep for {age_s:.0f} s" if age_s is not None else "")
    state = SourceState.HUNG if gpus.hanging else SourceState.FAILING if reason else SourceState.WAITING
    return SourceReading(source=NVML, state=state, at=now.wall, reason=reason)


def silence(*readings: SourceReading) -> tuple[str, ...]:
    """Which of these say nothing now, in words: without them a node is unknown, never healthy."""
    spoken = {KERNEL_LOG: "the kernel log", NVML: "NVML"}
    return tuple(
        spoken[reading.source] + (f" ({reading.reason})" if reading.reason else "")
        for reading in readings
        if reading.state is not SourceState.PRESENT
    )

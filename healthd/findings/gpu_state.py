"""The state of this node's GPUs from the samples so far: names, constants and last known values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from healthd.findings.facts import LevelFact, Moment, judge_level, make_gpu_component
from healthd.samples.nvml import GpuConstants, GpuReading
from vocabulary.finding import Severity
from vocabulary.messages.wire import Gpu

SIBLINGS_MIN = 4  # with fewer, two faulty ones would outvote a good one


class GpuState(msgspec.Struct, frozen=True):
    """One GPU. `latest` holds the last known value of everything; `read` what the last sweep read."""

    gpu: Gpu
    constants: GpuConstants
    latest: GpuReading
    read: GpuReading


def merge_reading(latest: GpuReading | None, read: GpuReading) -> GpuReading:
    """Return the last known values with what `read` adds. A lost GPU has no values."""
    if latest is None or read.lost or latest.lost:
        return read
    known = {name: value for name, value in msgspec.structs.asdict(read).items() if value is not None}
    return msgspec.structs.replace(latest, **known)


def judge_gpu_level(
    holds: bool | None,  # noqa: FBT001 - the answer itself
    state: GpuState,
    now: Moment,
    kind: tuple[str, str],
    summary: str,
    *,
    severity: Severity = Severity.WARNING,
    evidence: Mapping[str, str | float | bool | None] | None = None,
) -> list[LevelFact]:
    """Return the fact for a level of a GPU."""
    if holds is False:  # nearly always: so it comes first
        return []
    component = make_gpu_component(state.gpu)
    return judge_level(holds, now, kind, component, summary, severity=severity, evidence=evidence)


def median_of_siblings(values: Sequence[float], least: int = SIBLINGS_MIN) -> float | None:
    """Return the median of the node's other GPUs; None if there are too few."""
    if len(values) < least:
        return None
    ordered, half = sorted(values), len(values) // 2  # importing `statistics` would cost the node half a MiB
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def is_gpu_busy(state: GpuState, percent: float) -> bool | None:
    """Return whether the GPU ran kernels for at least that share of the time. Waiting for other GPUs counts as busy."""
    used, mask = state.latest.gpu_percent, state.latest.throttle_mask
    if used is None or mask is None:
        return None
    return used >= percent and not mask & _IDLE


_IDLE = 0x1  # clock event reason: nothing runs

"""The GPUs of this node as the samples so far show them: each one's names, constants and last known values."""

from __future__ import annotations

import msgspec

from healthd.samples.nvml import GpuConstants, GpuReading
from vocabulary.wire import Gpu


class GpuState(msgspec.Struct, frozen=True):
    """One GPU. `latest` holds the last known value of everything; `read` what the last sweep read."""

    gpu: Gpu
    constants: GpuConstants
    latest: GpuReading
    read: GpuReading


def merge(latest: GpuReading | None, read: GpuReading) -> GpuReading:
    """The last known values, with what `read` adds. A GPU that is lost has no values."""
    if latest is None or read.lost or latest.lost:
        return read
    known = {name: value for name in _FIELDS if (value := getattr(read, name)) is not None}
    return msgspec.structs.replace(latest, **known)


_FIELDS = tuple(GpuReading.__struct_fields__)

"""The result of one read of a kernel log, from any transport."""

from __future__ import annotations

from dataclasses import dataclass, field

from healthd.samples.kernel_record import Cursor, KernelGap, KernelRecord


@dataclass
class KernelBatch:
    """`more` means: read again at once."""

    cursor: Cursor | None
    records: list[KernelRecord] = field(default_factory=list)
    gaps: list[KernelGap] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)
    more: bool = False

"""What one look at a kernel log yielded, whichever transport it came by."""

from __future__ import annotations

from dataclasses import dataclass, field

from healthd.samples.kernel import Cursor, KernelGap, KernelRecord


@dataclass
class KernelBatch:
    """`more` means: look again at once."""

    cursor: Cursor | None
    records: list[KernelRecord] = field(default_factory=list)
    gaps: list[KernelGap] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)
    more: bool = False

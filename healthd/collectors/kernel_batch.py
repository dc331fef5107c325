"""What one look at a kernel log yielded, whichever transport it came by."""

from __future__ import annotations

from dataclasses import dataclass, field

from healthd.samples.kernel import Cursor, KernelGap, KernelRecord

NAME_WITHIN_RECORDS = 64  # microseconds lie between the two pieces; other CPUs print little in that time


@dataclass
class KernelBatch:
    """`more` means: look again at once."""

    cursor: Cursor | None
    records: list[KernelRecord] = field(default_factory=list)
    gaps: list[KernelGap] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)
    more: bool = False


class UnfinishedNames:
    """Knows when a record may be nothing but a name that a user chose.

    The kernel prints ``,cpuset=`` and the name of a control group in two pieces (cpuset_print_current_mems_allowed).
    If another CPU prints between them, the name begins a record of its own, as a continuation. A delegated control
    group may have any name of 255 bytes. So for a while after a record that ends before a name, no continuation
    record is taken at its word.
    """

    def __init__(self) -> None:
        self._left = 0

    def may_follow(self, text: str, facility: int) -> bool:
        """Whether this record may be such a name. Call for every record, in order."""
        doubtful = self._left > 0
        self._left = max(0, self._left - 1)
        if facility == 0 and text.endswith("="):
            self._left = NAME_WITHIN_RECORDS
        return doubtful

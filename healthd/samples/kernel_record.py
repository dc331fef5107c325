"""Samples of the kernel log. Times are UTC seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec


class Cursor(msgspec.Struct, frozen=True):
    """How far a kernel log has been read. `source` changes when positions restart: a boot id, or a file's inode."""

    source: str
    position: int


class KernelRecord(msgspec.Struct, frozen=True):
    """One record of the kernel log. Facility 0 is the kernel itself; a process's record has another.

    `attested`: the transport proves that the kernel began the record with this text. A line of a plain file proves
    nothing, and a continuation record may begin with a name that a user chose.
    """

    source: str
    position: int
    at: float
    facility: int
    text: str
    attested: bool = True

    @property
    def origin(self) -> str:
        """A permanent id of this record among all records of this node."""
        return f"{self.source}:{self.position}"


class KernelGap(msgspec.Struct, frozen=True):
    """Records that the ring buffer overwrote before they were read. `position` is the first one read after the gap."""

    source: str
    position: int
    at: float
    lost: int


@dataclass
class KernelBatch:
    """The result of one read of a kernel log, from any transport. `more` means: read again at once."""

    cursor: Cursor | None
    records: list[KernelRecord] = field(default_factory=list)
    gaps: list[KernelGap] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)
    more: bool = False

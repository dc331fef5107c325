"""Samples of the kernel log. Times are UTC seconds."""

from __future__ import annotations

import msgspec


class Cursor(msgspec.Struct, frozen=True):
    """How far a kernel log has been read. `source` changes when positions start anew: a boot id, or a file's inode."""

    source: str
    position: int


class KernelRecord(msgspec.Struct, frozen=True):
    """One record of the kernel log. Facility 0 is the kernel itself; whatever a process writes has another.

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
        """Names this record among all records of this node, for ever."""
        return f"{self.source}:{self.position}"


class KernelGap(msgspec.Struct, frozen=True):
    """Records the ring buffer overwrote before they could be read. `position` is the first one read after the gap."""

    source: str
    position: int
    at: float
    lost: int

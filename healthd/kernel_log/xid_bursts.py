"""Which Xid of a burst came first: it is the likely cause. Pure; times are monotonic or UTC seconds, never mixed.

A fault of one GPU makes the driver write many Xids: of the GPU itself, of the jobs on it, of its NVLink peers.
"""

from __future__ import annotations

from typing import NamedTuple

# This much silence separates bursts: NVIDIA's own analyzer uses three minutes (NVSentinel, pull request 248), and the
# time-out of a GPU's own processor (Xid 119) comes 45 s after its cause.
QUIET_S = 180.0
PLACES_MAX = 256


class BurstPosition(NamedTuple):
    """An Xid's position in a burst: its number, from 1, and the code of the first."""

    position: int
    first: str


class XidBursts:
    """Remembers the burst of each component; only silence ends a burst, not a different kind of event."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._open: dict[str, tuple[float, BurstPosition]] = {}

    def add(self, where: str, code: str, at: float) -> BurstPosition:
        """Add an Xid at this component; return its position."""
        last_at, last = self._open.pop(where, (at, BurstPosition(0, code)))
        place = (
            BurstPosition(last.position + 1, last.first)
            if abs(at - last_at) <= self._quiet_s
            else BurstPosition(1, code)
        )
        self._open[where] = (at, place)
        if len(self._open) > PLACES_MAX:
            del self._open[next(iter(self._open))]
        return place

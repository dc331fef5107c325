"""Open connections: how many there may be without a good token, and with one and the same; who leaves when they are too many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

STAY_S = 2.5  # so long everybody may take to show a token before somebody newer takes the place


class UnknownConnection:
    """One connection that is open and not known. Whoever let it in sets `leave`: what ends it."""

    def __init__(self, address: str, since: float) -> None:
        self.address = address
        self.since = since
        self.leave: Callable[[], object] = lambda: None


class UnknownConnections:
    """All of them, oldest first. For the one thread of the event loop.

    Where there is no room, the oldest goes if it had its time; otherwise the new one is not let in. So idle connections keep
    nobody out, and a fleet that comes back at once is served one after another instead of being cut off half-way.
    """

    def __init__(self, each: int, total: int, now: Callable[[], float]) -> None:
        """Room for `each` of one address, and for `total`. `now` is monotonic, in seconds."""
        self._each = each
        self._total = total
        self._now = now
        self._all: dict[UnknownConnection, None] = {}
        self._of: dict[str, dict[UnknownConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, address: str) -> UnknownConnection | None:
        """Let one in; None where there is no room."""
        neighbours = self._of.get(address, {})
        if len(neighbours) >= self._each and not self._make_room(neighbours):
            return None
        if len(self._all) >= self._total and not self._make_room(self._all):
            return None
        guest = UnknownConnection(address, self._now())
        self._all[guest] = None
        self._of.setdefault(address, {})[guest] = None
        return guest

    def forget(self, guest: UnknownConnection) -> None:
        """It has shown a good token, or is gone."""
        if self._all.pop(guest, guest) is None:
            neighbours = self._of[guest.address]
            del neighbours[guest]
            if not neighbours:
                del self._of[guest.address]

    def _make_room(self, among: dict[UnknownConnection, None]) -> bool:
        oldest = next(iter(among))
        if self._now() - oldest.since < STAY_S:
            return False
        self.forget(oldest)
        oldest.leave()
        return True


class AuthenticatedConnection(Protocol):
    """One connection on which a good token was shown."""

    @property
    def idle(self) -> bool:
        """Whether it waits for its next request."""

    def leave(self) -> None:
        """End it."""


class AuthenticatedConnections:
    """All of them, by whose token it was; of each the least recently used first. For the one thread of the event loop.

    Without a bound one node's token could take every connection that this process may have.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[AuthenticatedConnection, None]] = {}
        self._whose: dict[AuthenticatedConnection, str] = {}

    def __len__(self) -> int:
        return len(self._whose)

    def enter(self, member: AuthenticatedConnection, whose: str, most: int) -> bool:
        """It shows a token of `whose`, who may have `most`: the idle one that was used longest ago makes room.

        False where all the others are busy; then it counts as before.
        """
        mine = self._of.get(whose, {})
        if member not in mine and len(mine) >= most:
            idle = next((other for other in mine if other.idle), None)
            if idle is None:
                return False
            self.forget(idle)
            idle.leave()
        self.forget(member)
        self._whose[member] = whose
        self._of.setdefault(whose, {})[member] = None
        return True

    def forget(self, member: AuthenticatedConnection) -> None:
        """It is gone."""
        whose = self._whose.pop(member, None)
        if whose is not None:
            mine = self._of[whose]
            del mine[member]
            if not mine:
                del self._of[whose]

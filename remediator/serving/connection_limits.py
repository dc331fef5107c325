"""Limits on open connections: without a valid token in total and per address, and per token.

And which ones close first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

STAY_S = 2.5  # time to show a token before a newer connection may take the place


class UnknownConnection:
    """One open connection without a valid token. Its creator sets `leave`, which closes it."""

    def __init__(self, address: str, since: float) -> None:
        self.address = address
        self.since = since
        self.leave: Callable[[], object] = lambda: None


class UnknownConnections:
    """All of them, oldest first. For the event loop's thread only.

    When full, the oldest closes if its time is up; otherwise the new one is rejected. So idle connections block no client,
    and a fleet that reconnects at once is served one by one instead of being cut off half-way.
    """

    def __init__(self, each: int, total: int, now: Callable[[], float]) -> None:
        """Allow `each` per address and `total` overall. `now` is monotonic, in seconds."""
        self._each = each
        self._total = total
        self._now = now
        self._all: dict[UnknownConnection, None] = {}
        self._of: dict[str, dict[UnknownConnection, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def enter(self, address: str) -> UnknownConnection | None:
        """Add a connection; None if there is no room."""
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
        """Remove it: it has shown a valid token, or has closed."""
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
    """One connection with a valid token."""

    @property
    def idle(self) -> bool:
        """Whether it waits for its next request."""

    def leave(self) -> None:
        """Close it."""


class AuthenticatedConnections:
    """All of them by token owner, least recently used first. For the event loop's thread only.

    Without a limit, one node's token could take every connection of this process.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[AuthenticatedConnection, None]] = {}
        self._whose: dict[AuthenticatedConnection, str] = {}

    def __len__(self) -> int:
        return len(self._whose)

    def enter(self, member: AuthenticatedConnection, whose: str, most: int) -> bool:
        """Count a connection for `whose`, who may have `most`; the least recently used idle one makes room.

        False if all others are busy; it then counts as before.
        """
        mine = self._of.get(whose, {})
        if mine and next(reversed(mine)) is member:  # the most recently used one already
            return True
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
        """Remove a closed connection."""
        whose = self._whose.pop(member, None)
        if whose is not None:
            mine = self._of[whose]
            del mine[member]
            if not mine:
                del self._of[whose]

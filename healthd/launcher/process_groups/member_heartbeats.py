"""Which members of a job are frozen: stopped, stuck in a driver call with all their threads, or cut off from the launcher. Pure.

The end of a connection shows a process that has died. A frozen one keeps its connection, so the launcher sends pings. A
silent member counts as frozen only while the job stands still: a process may hold Python's lock for many seconds, and then
its peers' steps show that nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Collection

PING_SECONDS = 2.0
PINGS_PER_SECOND_MAX = 500.0  # the launcher has one thread for all members
PINGS_MISSED = 3  # at least
STALL_SECONDS = 5.0  # the launcher itself was not running for so long: silence in that time says nothing


class MemberHeartbeats:
    """Who answered when, in one attempt. Times are monotonic seconds."""

    def __init__(self, frozen_seconds: float, members: int) -> None:
        """Args: `frozen_seconds`: of silence and standstill until a member counts as frozen; 0: never. `members`: how many there are."""
        self._every = max(PING_SECONDS, members / PINGS_PER_SECOND_MAX)
        self._limit = max(frozen_seconds, PINGS_MISSED * self._every) if frozen_seconds else 0.0
        self._heard: dict[int, float] = {}  # of members that answer pings
        self._trained: set[int] = set()
        self._steps: dict[int, int] = {}
        self._progress_at = 0.0
        self._pinged_at, self._looked_at = 0.0, 0.0

    def note_trained(self, members: Collection[int], now: float) -> None:
        """These members' generation has finished a step: from now on their first compilation is behind them."""
        self._trained |= set(members)
        self._progress_at = now

    def note_answer(self, member: int, steps: int, now: float) -> None:
        """A member has answered a ping. Args: `steps`: how many it has begun so far."""
        self._heard[member] = now
        if steps != self._steps.get(member):
            self._steps[member], self._progress_at = steps, now

    def forget(self, member: int) -> None:
        """A member is gone."""
        self._heard.pop(member, None)
        self._steps.pop(member, None)
        self._trained.discard(member)

    def is_ping_due(self, now: float) -> bool:
        """Whether to ping all members now. Call it often."""
        if not self._limit:
            return False
        if (away := now - self._looked_at) > STALL_SECONDS and self._looked_at:
            self._heard = {member: at + away for member, at in self._heard.items()}
            self._progress_at += away
        self._looked_at = now
        if now - self._pinged_at < self._every:
            return False
        self._pinged_at = now
        return True

    def find_frozen(self, now: float) -> list[int]:
        """Members that have been silent for too long while no step began, though others answer."""
        if not self._limit or now - self._progress_at < self._limit:
            return []
        if not any(now - at <= PINGS_MISSED * self._every for at in self._heard.values()):
            return []
        return sorted(m for m, at in self._heard.items() if m in self._trained and now - at >= self._limit)

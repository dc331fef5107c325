"""What we gave up on while somebody may be at it: an order that its node fetched, a change that the scheduler was asked for.

Nothing is decided by how it ends, but people are to find in the audit log that it did.
"""

from __future__ import annotations

from collections.abc import Iterable

from remediator.model.journal_records import Action

REMEMBERED_S = 86_400.0
MOST = 10_000


class UnansweredActions:
    """Actions that ended by our word alone, the oldest end first."""

    def __init__(self, ended: Iterable[Action] = ()) -> None:
        self.actions: dict[str, Action] = {}
        for action in sorted(ended, key=lambda each: each.finished_at or 0.0):
            self.add(action)

    def add(self, action: Action) -> None:
        """One more; of too many, the oldest is forgotten."""
        self.actions[action.id] = action
        if len(self.actions) > MOST:
            del self.actions[next(iter(self.actions))]

    def take(self, action: str) -> Action | None:
        """The one that has answered after all; it is heard then."""
        return self.actions.pop(action, None)

    def forget(self, now: float) -> None:
        """Drop what ended a day ago."""
        while self.actions and now - (next(iter(self.actions.values())).finished_at or 0.0) > REMEMBERED_S:
            del self.actions[next(iter(self.actions))]

"""Actions given up while they may still run: an order that its node fetched, a change requested from the scheduler.

Their end decides nothing, but the audit log records it.
"""

from __future__ import annotations

from collections.abc import Iterable

from remediator.model.journal_records import Action

REMEMBERED_S = 86_400.0
MOST = 10_000


class UnansweredActions:
    """Actions that ended without an answer, the oldest end first."""

    def __init__(self, ended: Iterable[Action] = ()) -> None:
        self.actions: dict[str, Action] = {}
        for action in sorted(ended, key=lambda each: each.finished_at or 0.0):
            self.add(action)

    def add(self, action: Action) -> None:
        """Add one; beyond the limit, the oldest is dropped."""
        self.actions[action.id] = action
        if len(self.actions) > MOST:
            del self.actions[next(iter(self.actions))]

    def take(self, action: str) -> Action | None:
        """Return and remove the action that has answered after all."""
        return self.actions.pop(action, None)

    def forget(self, now: float) -> None:
        """Drop what ended a day ago."""
        while self.actions and now - (next(iter(self.actions.values())).finished_at or 0.0) > REMEMBERED_S:
            del self.actions[next(iter(self.actions))]

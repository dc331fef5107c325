"""Whose turn it is: each GPU once in a while, evenly spread, so that no sweep bears all the dear calls. Pure."""

from __future__ import annotations


class RoundRobin:
    """Gives each of `members` (0, 1, …) its turn every `every_s`, by time, however often it is asked.

    The first round is shorter: it takes `first_s`, and begins at `began` (monotonic seconds).
    """

    def __init__(self, members: int, every_s: float, *, first_s: float, began: float) -> None:
        self._members = members
        self._spacing_s = every_s / max(1, members)
        self._first_spacing_s = first_s / max(1, members)
        self._given = 0
        self._due = began

    def turns(self, now: float) -> frozenset[int]:
        """Those whose turn has come; nobody twice, and nothing is made up for after a long pause."""
        turns: set[int] = set()
        while self._due <= now and len(turns) < self._members:
            turns.add(self._given % self._members)
            self._given += 1
            self._due += self._first_spacing_s if self._given < self._members else self._spacing_s
        if self._due <= now:
            self._due = now + self._spacing_s
        return frozenset(turns)

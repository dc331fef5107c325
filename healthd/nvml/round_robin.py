"""Spreads expensive calls: each GPU gets a turn at an even rate, so that no sweep makes all of them. Pure."""

from __future__ import annotations


class RoundRobin:
    """Gives each of `members` (0, 1, …) a turn every `every_s`, however often it is called.

    The first round takes `first_s` and starts at `began` (monotonic seconds).
    """

    def __init__(self, members: int, every_s: float, *, first_s: float, began: float) -> None:
        self._members = members
        self._spacing_s = every_s / max(1, members)
        self._first_spacing_s = first_s / max(1, members)
        self._given = 0
        self._due = began

    def turns(self, now: float) -> frozenset[int]:
        """Return the members that are due; none twice, and missed turns are not made up."""
        turns: set[int] = set()
        while self._due <= now and len(turns) < self._members:
            turns.add(self._given % self._members)
            self._given += 1
            self._due += self._first_spacing_s if self._given < self._members else self._spacing_s
        if self._due <= now:
            self._due = now + self._spacing_s
        return frozenset(turns)

"""The event queue: the clock of a simulation."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

Event = Callable[[], None]


class EventQueue:
    """Events in order of time; at the same time, in the order they were added."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Event]] = []
        self._order = itertools.count()

    def at(self, when: float, event: Event) -> None:
        """Schedule an event at `when` seconds, or now if that has passed."""
        heapq.heappush(self._events, (max(when, self.now), next(self._order), event))

    def after(self, seconds: float, event: Event) -> None:
        """Schedule an event after a delay in seconds."""
        self.at(self.now + seconds, event)

    def run(self, until: float) -> None:
        """Run all events up to `until`, which is then the time."""
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until

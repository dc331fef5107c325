"""How often somebody may ask: token buckets, and seats for requests that stay open. For the one thread of the event loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from remediator.door import Limits

KEPT_MAX = 200_000  # callers remembered; beyond, everybody begins anew with a full bucket


class Buckets:
    """Token buckets by key: `burst` at once, then `per_s`."""

    def __init__(self, per_s: float, burst: int, now: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}  # tokens left, and when

    def wait_s(self, key: str) -> float:
        """Take one. 0, or how long until there is one to take."""
        now = self._now()
        left, at = self._left.get(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        if left < 1.0:
            self._left[key] = (left, now)
            return (1.0 - left) / self._per_s
        if len(self._left) >= KEPT_MAX:
            self._left.clear()
        self._left[key] = (left - 1.0, now)
        return 0.0


class Seats:
    """Requests that stay open, by key and in all."""

    def __init__(self, each: int, total: int | None = None) -> None:
        self._each = each
        self._total = total
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, key: str) -> Iterator[bool]:
        """A seat while the block runs; False where there is none left."""
        full = self._taken[key] >= self._each or (self._total is not None and self._taken.total() >= self._total)
        if full:
            yield False
            return
        self._taken[key] += 1
        try:
            yield True
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]


class Gate:
    """All limits of one leader."""

    def __init__(self, limits: Limits, now: Callable[[], float]) -> None:
        self.limits = limits
        self.nodes = Buckets(limits.node_per_s, limits.node_burst, now)
        self.people = Buckets(limits.person_per_s, limits.person_burst, now)
        self.unknown = Buckets(limits.unknown_per_s, limits.unknown_burst, now)
        self.polls = Seats(limits.polls_per_node)
        self.streams = Seats(limits.streams_per_person, limits.streams)

"""Rate limits: token buckets, and slots for requests that stay open. For the event loop's thread only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from remediator.server_config import AccessLimits

KEPT_MAX = 200_000  # callers kept; beyond, all restart with a full bucket


class TokenBuckets:
    """Token buckets by key: `burst` at once, then `per_s`.

    Costs known only afterwards are charged, and may exceed the balance.
    """

    def __init__(self, per_s: float, burst: int, now: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = float(burst)
        self._now = now
        self._left: dict[str, tuple[float, float]] = {}  # tokens left, and when

    def wait_s(self, key: str) -> float:
        """Take one token. Returns 0, or the seconds until one is available."""
        now = self._now()
        left = self._left_at(key, now)
        if left < 1.0:
            self._left[key] = (left, now)
            return (1.0 - left) / self._per_s
        self._take(key, left, 1.0, now)
        return 0.0

    def retry_after_s(self, key: str) -> float:
        """Return the seconds until the charged tokens are refilled; 0 without debt."""
        return max(0.0, -self._left_at(key, self._now()) / self._per_s)

    def charge(self, key: str, tokens: float) -> None:
        """Take so many tokens, even if fewer are left."""
        now = self._now()
        self._take(key, self._left_at(key, now), tokens, now)

    def _left_at(self, key: str, now: float) -> float:
        kept = self._left.get(key)
        return self._burst if kept is None else min(self._burst, kept[0] + (now - kept[1]) * self._per_s)

    def _take(self, key: str, left: float, tokens: float, now: float) -> None:
        if len(self._left) >= KEPT_MAX:
            self._left.clear()
        self._left[key] = (left - tokens, now)


class RequestSlots:
    """Requests that stay open, by key and in total."""

    def __init__(self, each: int, total: int | None = None) -> None:
        self._each = each
        self._total = total
        self._taken: Counter[str] = Counter()

    @contextmanager
    def one(self, key: str) -> Iterator[bool]:
        """Hold a slot while the block runs; False if none is left."""
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


class RateLimitGate:
    """All limits of one leader."""

    def __init__(self, limits: AccessLimits, now: Callable[[], float]) -> None:
        self.limits = limits
        self.nodes = TokenBuckets(limits.node_per_s, limits.node_burst, now)
        self.news = TokenBuckets(limits.news_per_s, limits.news_burst, now)
        self.people = TokenBuckets(limits.person_per_s, limits.person_burst, now)
        self.unknown = TokenBuckets(limits.unknown_per_s, limits.unknown_burst, now)
        self.polls = RequestSlots(limits.polls_per_node)
        self.streams = RequestSlots(limits.streams_per_person, limits.streams)

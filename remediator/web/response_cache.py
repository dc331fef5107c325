"""Caches expensive results that are the same for all users, for one second."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH_S = 1.0
KEPT_MAX = 16


class ResponseCache(Generic[T]):
    """Results by key. Thread-safe; concurrent callers wait for one computation."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` is monotonic, in seconds."""
        self._now = now
        self._found: dict[Hashable, tuple[float, T]] = {}
        self._one_at_a_time = threading.Lock()

    def get(self, key: Hashable, work: Callable[[], T]) -> T:
        """The cached result if it is at most `FRESH_S` old, else the result of `work`."""
        with self._one_at_a_time:
            kept = self._found.get(key)
            if kept is not None and self._now() - kept[0] < FRESH_S:
                return kept[1]
            if len(self._found) >= KEPT_MAX:
                self._found.clear()
            answer = work()
            self._found[key] = (self._now(), answer)
            return answer

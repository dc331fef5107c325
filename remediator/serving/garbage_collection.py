"""Python's collector of cycles, by the clock: short pauses for a fleet's connections, and nothing left behind.

Python's own count goes by allocations. With it 12 500 connections were walked over so often that a report cost half as much again; and
what replaces something freed counts for nothing, so the young grew to everything the nodes said last, and one collection took a tenth
of a second (bench/results/2026-11-remediator.md).

What outlives one collection is old at once: Python's middle generation would have it walked over a second time, for the few cycles that
end just then.
"""

from __future__ import annotations

import gc

YOUNG_S, ALL_S = 0.2, 3600.0  # so often the new, and all
COUNT_S = 60.0  # so often the old are counted, which takes as long as to walk over the new
# So many old objects more than after the last look at all, and all are looked at before their time, should circles gather among them.
# Two million are some 200 MB, and twice what a fleet of 12 500 brings when it joins: to look at that takes 2.7 s, in which nobody is
# answered.
GROWN_FRACTION, GROWN_OBJECTS = 0.25, 2_000_000


class GarbageCollection:
    """Collects the new and, from time to time, all. What is there when it begins lives as long as the process, and is never walked over."""

    def __init__(self, now: float) -> None:
        gc.freeze()
        gc.disable()
        self._count_at = now + COUNT_S
        self._all_at = now + ALL_S
        self._old_max = GROWN_OBJECTS

    def step(self, now: float) -> None:
        """Collect the new, or all if it is time to. Call it every `YOUNG_S` seconds; `now` is monotonic."""
        if now < self._all_at and not self._has_grown(now):
            gc.collect(1)
            return
        gc.collect()
        self._all_at = now + ALL_S
        self._old_max = int(_old_object_count() * (1 + GROWN_FRACTION)) + GROWN_OBJECTS

    def _has_grown(self, now: float) -> bool:
        if now < self._count_at:
            return False
        self._count_at = now + COUNT_S
        return _old_object_count() > self._old_max


def _old_object_count() -> int:
    """How many there are.

    Counted within one call, in which no other thread has its turn: while the list of them exists, it refers to tuples that others are
    just making, and a tuple that somebody else refers to cannot be finished (SystemError, in whichever thread).
    """
    return next(map(len, map(gc.get_objects, (2,))))

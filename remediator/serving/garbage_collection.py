"""Runs Python's cycle collector by the clock, for short pauses with a fleet's connections.

By default Python collects by allocation count. It then traversed 12 500 connections so often that a report cost half as
much again; and because replaced objects do not count, the young generation grew to all last reports, and one collection
took a tenth of a second (bench/results/2026-11-remediator.md). What survives one collection moves to the old generation
at once: the middle generation would traverse it a second time for few cycles.
"""

from __future__ import annotations

import gc

YOUNG_S, ALL_S = 0.2, 3600.0  # intervals of young and of full collections
COUNT_S = 60.0  # interval of counting old objects, which takes as long as a young collection
# Growth of the old generation that triggers a full collection early, in case cycles gather there. Two million objects
# are some 200 MB, twice what a joining fleet of 12 500 brings; a full collection of them takes 2.7 s, during which no
# request is answered.
GROWN_FRACTION, GROWN_OBJECTS = 0.25, 2_000_000


class GarbageCollection:
    """Collects young objects and, from time to time, all.

    Objects that exist at its start are frozen and never traversed.
    """

    def __init__(self, now: float) -> None:
        gc.freeze()
        gc.disable()
        self._count_at = now + COUNT_S
        self._all_at = now + ALL_S
        self._old_max = GROWN_OBJECTS

    def step(self, now: float) -> None:
        """Run a young collection, or a full one when due. Call it every `YOUNG_S` seconds; `now` is monotonic."""
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
    """Return the number of old objects.

    Counted within one call, so that no other thread runs meanwhile: the list of objects refers to tuples that other
    threads are building, and CPython cannot finish a tuple with another reference (SystemError in that thread).
    """
    return next(map(len, map(gc.get_objects, (2,))))

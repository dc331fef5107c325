"""Python's collector of cycles, by the clock: short pauses for a fleet's connections, and nothing left behind.

Python's own count goes by allocations. With it 12 500 connections were walked over so often that a report cost half as much again; and
what replaces something freed counts for nothing, so the young grew to everything the nodes said last, and one collection took a tenth
of a second (bench/results/2026-11-remediator.md).
"""

from __future__ import annotations

import gc

EVERY_S = (0.2, 60.0, 3600.0)  # the young, those that outlived one collection, all
# So many old objects more than after the last look at all, and all are looked at before their time: a closed connection is held by its
# timer for a minute, so what is left of it is old by then. Two million are some 200 MB, and twice what a fleet of 12 500 brings when it
# joins: to look at that takes 2.7 s, in which nobody is answered.
GROWN_FRACTION, GROWN_OBJECTS = 0.25, 2_000_000
# So many that outlived one collection, and they are looked at at once, some 20 ms: a fleet that joins brings a million within a minute,
# and to look at those when the minute is over took 1.3 s of processor.
MIDDLE_OBJECTS = 20_000


class Collection:
    """Collects each generation at its time. What is there when it begins lives as long as the process, and is never walked over."""

    def __init__(self, now: float) -> None:
        gc.freeze()
        gc.disable()
        self._due = [now + every_s for every_s in EVERY_S]
        self._old_max = GROWN_OBJECTS

    def step(self, now: float) -> None:
        """Collect the oldest generation that is due, and so all younger ones. Call it every `EVERY_S[0]` seconds; `now` is monotonic."""
        oldest = max((n for n, due in enumerate(self._due) if now >= due), default=None)
        if oldest is None:
            return
        gc.collect(oldest)
        if oldest == 0 and _objects_in(1) > MIDDLE_OBJECTS:
            gc.collect(1)  # and its time comes all the same: to count the old costs as much as this
        if oldest == 1 and _objects_in(2) > self._old_max:
            oldest = 2
            gc.collect(oldest)
        if oldest == 2:
            self._old_max = int(_objects_in(2) * (1 + GROWN_FRACTION)) + GROWN_OBJECTS
        self._due[: oldest + 1] = [now + every_s for every_s in EVERY_S[: oldest + 1]]


def _objects_in(generation: int) -> int:
    """How many objects it holds.

    Counted within one call, in which no other thread has its turn: while the list of them exists, it refers to tuples that others are
    just making, and a tuple that somebody else refers to cannot be finished (SystemError, in whichever thread).
    """
    return next(map(len, map(gc.get_objects, (generation,))))

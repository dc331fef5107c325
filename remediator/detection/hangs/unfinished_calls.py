"""Finds the rank whose GPU or link failed inside a collective: it did not come out of a call that others came out of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from remediator.detection.hangs.call_records import StuckCall


def find_unfinished_ranks(stuck: Sequence[StuckCall]) -> tuple[set[int], StuckCall]:
    """Return the culprits, empty if they cannot be told from their victims, and the call that shows them best.

    A failure inside a call can hold back innocent members as well, but only in that call: a rank that is alone in it, or
    did not come out of calls of several groups, or of several calls, failed. It explains those that share a call with it.
    Of ranks that only share one call, those that made no later call have stopped; if that is true of all, nobody is named.
    """
    behind = sorted((each for each in stuck if each.unfinished), key=lambda each: (len(each.unfinished), each.group))
    groups = Counter(rank for each in behind for rank in each.unfinished)
    culprits = {
        rank
        for each in behind
        for rank, calls in each.unfinished.items()
        if len(each.unfinished) == 1 or calls > 1 or groups[rank] > 1
    }
    waiting = {rank for each in stuck for rank in each.waiting if rank not in each.idle}
    absent = {rank for each in stuck for rank in each.absent} - waiting
    for each in behind:
        shared = each.unfinished.keys()
        if not shared & culprits and shared & absent != shared:
            culprits |= shared & absent
    shown = next((each for each in behind if culprits & each.unfinished.keys()), behind[0])
    return culprits, shown

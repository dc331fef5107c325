"""Finds the slow link from the membership of groups with slow transfers. Pure.

A ring is as slow as its slowest member, so its members all look alike: one slow group blames nobody. Two slow groups
with one rank or one node in common do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from remediator.detection.stragglers.step_trace import UNKNOWN, Ints, StepTrace

GROUP_SHARE = 0.8
GROUPS_MIN = 2
AXES = {"dp_rank": ("pp_rank", "tp_rank"), "pp_rank": ("dp_rank", "tp_rank"), "tp_rank": ("dp_rank", "pp_rank")}


@dataclass(frozen=True)
class BlamedColumns:
    """The columns to blame, the number of slow groups, and how many of them these explain."""

    columns: tuple[int, ...]
    slow_groups: int
    explained: int


def communication_groups(trace: StepTrace) -> list[Ints]:
    """Return every communication group of two or more, as columns: ranks that differ in one coordinate only."""
    found: list[Ints] = []
    for axis, fixed in AXES.items():
        if (trace.places[axis] == UNKNOWN).any() or np.unique(trace.places[axis]).size < 2:
            continue
        keys = np.stack([trace.places[name] for name in fixed])
        _, number = np.unique(keys, axis=1, return_inverse=True)
        number = number.reshape(-1)
        order = np.argsort(number, kind="stable")
        cuts = np.flatnonzero(np.diff(number[order])) + 1
        found += [members for members in np.split(order, cuts) if members.size >= 2]
    return found


def blame_shared_unit(trace: StepTrace, slow: Iterable[int]) -> BlamedColumns:
    """Return what the slow transfers point at.

    Args:
        trace: with the coordinates of the ranks and, if known, their nodes.
        slow: columns whose transfers take longer than they should.
    """
    suspects = set(slow)
    everywhere = communication_groups(trace)
    bad = [members for members in everywhere if _slow_member_share(members, suspects) >= GROUP_SHARE]
    good = [members for members in everywhere if _slow_member_share(members, suspects) < GROUP_SHARE]
    if not bad:
        return BlamedColumns((), 0, 0)
    for unit in (list(range(trace.ranks.size)), trace.codes["node"].tolist()):
        best = _common_unit(unit, bad, good)
        if best is not None:
            unit_of, count = best
            columns = tuple(c for c in sorted(suspects) if unit[c] == unit_of)
            return BlamedColumns(columns, len(bad), count)
    return BlamedColumns((), len(bad), 0)


def _slow_member_share(members: Ints, slow: set[int]) -> float:
    return sum(int(column) in slow for column in members) / members.size


def _common_unit(unit: Sequence[Hashable], bad: list[Ints], good: list[Ints]) -> tuple[Hashable, int] | None:
    """Return the only unit in at least two slow groups, in more of them than any other, and in all of them."""
    counts = Counter(each for members in bad for each in {unit[int(column)] for column in members})
    counts.pop(UNKNOWN, None)
    ranked = counts.most_common(2)
    if not ranked or ranked[0][1] < max(GROUPS_MIN, len(bad)):
        return None
    if len(ranked) > 1 and ranked[1][1] == ranked[0][1]:
        return None
    name, count = ranked[0]
    spared = sum(name in {unit[int(column)] for column in members} for members in good)
    return (name, count) if spared <= count else None

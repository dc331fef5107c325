"""From what stands still to who is to blame.

A rank that is absent from a call and waits in another is a victim of that one. Who is absent and waits nowhere holds the
job up. Whoever reported a time-out is no more to blame than any other that waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from remediator.detect.hangs.collectives import stuck_collectives
from remediator.detect.hangs.graph import final_circles, sinks
from remediator.detect.hangs.point_to_point import stuck_transfers
from remediator.detect.hangs.records import Snapshot, Stuck, Verdict
from remediator.detect.hangs.words import reasons_of


class Blame(NamedTuple):
    """Before it is put into words. `root`: the call that shows it best."""

    kind: str
    culprits: set[int]
    root: Stuck | None


def judge(snapshot: Snapshot) -> Verdict:
    """Who holds the job up, or nobody."""
    stuck = sorted(
        [*stuck_collectives(snapshot), *stuck_transfers(snapshot)], key=lambda each: (each.group, each.number)
    )
    silent = tuple(rank for rank in snapshot.everybody if rank not in snapshot.recorded)
    if not stuck:
        return Verdict(kind="none", silent=silent, reasons=reasons_of(snapshot, (), (), None, silent))
    blame = _blame(snapshot, stuck)
    held_up = {
        rank for each in stuck for rank in (*each.waiting, *each.absent, *each.later) if rank in snapshot.recorded
    }
    culprits = tuple(sorted(blame.culprits))
    return Verdict(
        kind=blame.kind,
        culprits=culprits,
        victims=tuple(sorted(held_up - blame.culprits)),
        root=blame.root,
        stuck=tuple(stuck),
        silent=silent,
        reasons=reasons_of(snapshot, stuck, culprits, blame.root, silent),
    )


def _blame(snapshot: Snapshot, stuck: Sequence[Stuck]) -> Blame:
    unlike = [each for each in stuck if each.odd]
    if unlike:
        root = min(unlike, key=_begun)
        return Blame("mismatched_collectives", {rank for each in unlike for rank in each.odd}, root)
    blamed = _absent(snapshot, stuck)
    if blamed:
        dead = all(rank not in snapshot.recorded for rank in blamed)
        return Blame("dead_rank" if dead else "stuck_compute", blamed, _shows(stuck, blamed))
    inside = _inside(stuck)
    for each in inside:
        busy = {rank for rank in each.idle if not any(rank in other.waiting for other in stuck if other is not each)}
        if busy:
            return Blame("stuck_compute", busy, each)
    if not inside or not _reach(stuck, {rank for each in inside for rank in each.waiting}):
        circle = _circle(stuck)
        if circle is not None:
            return circle
    root = min(inside or stuck, key=_begun)
    few = root.left and 2 * len(root.waiting) < len({*root.waiting, *root.later}) + 1
    return Blame("network", set(root.waiting) if few else set(), root)


def _absent(snapshot: Snapshot, stuck: Sequence[Stuck]) -> set[int]:
    """Sinks of the graph. A rank that left no record might have been anywhere: it is blamed only where no other explains the wait."""
    inside = {rank for each in _inside(stuck) for rank in each.waiting}
    graph: dict[int, set[int]] = {}
    for each in stuck:
        here = {rank for rank in each.absent if rank in snapshot.recorded}
        for rank in each.waiting:
            if each.absent:
                graph.setdefault(rank, set()).update(here or each.absent)
    ends = sinks(graph, graph.keys() | inside)
    return {rank for rank in ends if rank in snapshot.recorded} or ends


def _inside(stuck: Iterable[Stuck]) -> list[Stuck]:
    """Calls that all entered and that do not end, and not because one of those ranks has an earlier one to end first."""
    stuck = list(stuck)
    earliest: dict[int, int] = {}
    for each in stuck:
        if each.absent:
            for rank in each.waiting:
                earliest[rank] = min(each.orders.get(rank, 0), earliest.get(rank, each.orders.get(rank, 0)))
    return [
        each
        for each in stuck
        if not each.absent
        and not each.odd
        and not any(rank in earliest and earliest[rank] <= each.orders.get(rank, 0) for rank in each.waiting)
    ]


def _reach(stuck: Sequence[Stuck], targets: set[int]) -> bool:
    """Somebody waits, if only through others, for one of `targets`."""
    return any(targets & set(each.absent) for each in stuck)


def _circle(stuck: Sequence[Stuck]) -> Blame | None:
    """Ranks that wait for each other called different groups' collectives in different orders; fewer than the others, if any are."""
    graph: dict[int, set[int]] = {}
    for each in stuck:
        for rank in each.waiting:
            graph.setdefault(rank, set()).update(each.absent)
    circles = final_circles(graph)
    if not circles:
        return None
    circle = circles[0]
    first = {
        rank: min((e for e in stuck if rank in e.waiting and e.absent), key=lambda e: e.orders.get(rank, 0))
        for rank in circle
        if rank in graph
    }
    count = Counter((each.group, each.number, each.name) for each in first.values())
    usual, most = count.most_common(1)[0]
    few = {rank for rank, each in first.items() if (each.group, each.number, each.name) != usual}
    culprits = few if 2 * most > len(first) else set(circle)
    return Blame("mismatched_collectives", culprits, _shows(stuck, culprits))


def _shows(stuck: Sequence[Stuck], blamed: set[int]) -> Stuck | None:
    """The call that most wait in for those to blame; of several the one that they should have entered first."""
    candidates = [each for each in stuck if blamed & set(each.absent)]
    return min(candidates, key=lambda e: (len(set(e.absent) - blamed), -len(e.waiting), _begun(e)), default=None)


def _begun(stuck: Stuck) -> int:
    return min(stuck.orders.values(), default=0)

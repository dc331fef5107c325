"""From what stands still to who is to blame.

A rank that is absent from a call and waits in another is a victim of that one. Who is absent and waits nowhere holds the
job up. Whoever reported a time-out is no more to blame than any other that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from remediator.detect.hangs.collectives import stuck_collectives
from remediator.detect.hangs.graph import final_circles, sinks
from remediator.detect.hangs.order import crossed_calls, out_of_order
from remediator.detect.hangs.point_to_point import stuck_transfers
from remediator.detect.hangs.records import Snapshot, Stuck, Verdict
from remediator.detect.hangs.silent import needed
from remediator.detect.hangs.words import reasons_of

ALONE = 3  # so many times more are not there than are


class Blame(NamedTuple):
    """Before it is put into words. `root`: the call that shows it best."""

    kind: str
    culprits: set[int]
    root: Stuck | None


def judge(snapshot: Snapshot) -> Verdict:
    """Who holds the job up, or nobody."""
    found = [*stuck_collectives(snapshot), *stuck_transfers(snapshot)]
    stuck = sorted(_queued(snapshot, found), key=lambda each: (each.group, each.number, each.name))
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


def _queued(snapshot: Snapshot, stuck: Sequence[Stuck]) -> list[Stuck]:
    """Where a rank cannot tell what its GPU has begun: its first open call has, the others are taken to be queued behind it."""
    unsure = {call.rank for call in snapshot.operations if call.state == "pending"}
    first: dict[int, int] = {}
    for each in stuck:
        for rank, order in each.orders.items():
            first[rank] = min(order, first.get(rank, order))
    return [
        msgspec.structs.replace(
            each,
            idle=tuple(r for r in each.waiting if r in each.idle or (r in unsure and first[r] < each.orders[r])),
        )
        for each in stuck
    ]


def _blame(snapshot: Snapshot, stuck: Sequence[Stuck]) -> Blame:
    unlike = [each for each in stuck if each.odd]
    if unlike:
        root = min(unlike, key=_begun)
        return Blame("mismatched_collectives", {rank for each in unlike for rank in each.odd}, root)
    inside = _inside(stuck)
    graph = _graph(snapshot, stuck)
    ends = sinks(graph, graph.keys() | {rank for each in inside for rank in each.waiting})
    recorded = ends & snapshot.recorded
    blamed = {rank for rank in recorded if any(rank in each.absent for each in stuck)} or recorded or ends
    dead = not blamed & snapshot.recorded
    if dead and inside:
        blamed = set()  # what stands still with all inside explains the rest: the records of those others are lost
    if blamed:
        blamed = needed(snapshot, stuck, graph, blamed) if dead else blamed
        shown = _shows(stuck, blamed)
        alone = _alone(snapshot, shown, blamed)
        if alone:
            return Blame("mismatched_collectives", alone, shown)
        return Blame("dead_rank" if dead else "stuck_compute", blamed, shown)
    crossed = crossed_calls(inside)
    if crossed:
        return Blame("mismatched_collectives", crossed, min(inside, key=_begun))
    circles = final_circles(graph)
    if circles and not inside:
        odd = out_of_order(snapshot, circles[0], stuck)
        return Blame("mismatched_collectives", odd, _shows(stuck, odd))
    root = min(inside or stuck, key=_begun)
    few = root.left and len(root.waiting) < len(root.later)
    return Blame("network", set(root.waiting) if few else set(), root)


def _alone(snapshot: Snapshot, root: Stuck | None, blamed: set[int]) -> set[int]:
    """Who made a call that hardly any other of its group made, while these wait nowhere: that call is one too many."""
    if root is None or "->" in root.name or not blamed <= set(root.absent) & snapshot.recorded:
        return set()
    inside = set(root.waiting) - set(root.idle)
    return inside if ALONE * len(inside) <= len(blamed) and set(root.absent) == blamed else set()


def _graph(snapshot: Snapshot, stuck: Sequence[Stuck]) -> dict[int, set[int]]:
    """Who waits for whom. A rank that left no record might have been anywhere: it is waited for only where no other is."""
    graph: dict[int, set[int]] = {}
    for each in stuck:
        missing = each.missing
        targets = missing & snapshot.recorded or missing
        for rank in each.waiting:
            if targets and rank not in each.idle:
                graph.setdefault(rank, set()).update(targets)
    return graph


def _inside(stuck: Sequence[Stuck]) -> list[Stuck]:
    """Calls that all are in and that do not end."""
    return [each for each in stuck if not each.missing and not each.odd]


def _shows(stuck: Sequence[Stuck], blamed: set[int]) -> Stuck | None:
    """The call that most wait in for those to blame, and for fewest others."""
    candidates = [each for each in stuck if blamed & each.missing]
    return min(candidates, key=lambda e: (len(e.missing - blamed), -len(e.waiting), _begun(e)), default=None)


def _begun(stuck: Stuck) -> int:
    return min(stuck.orders.values(), default=0)

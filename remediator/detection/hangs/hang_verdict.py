"""From stuck calls to the culprit.

A rank that did not come out of a call that others came out of is the culprit. A rank absent from one call that waits in
another is a victim of that one. A rank that is absent and waits nowhere is the culprit. The rank that reported a time-out
is no more suspect than any other that waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from remediator.detection.hangs.call_order import find_crossed_callers, find_out_of_order_ranks
from remediator.detection.hangs.call_records import HangVerdict, Snapshot, StuckCall
from remediator.detection.hangs.collective_calls import stuck_collectives
from remediator.detection.hangs.missing_ranks import find_necessary_dead_ranks
from remediator.detection.hangs.point_to_point import find_stuck_transfers
from remediator.detection.hangs.unfinished_calls import find_unfinished_ranks
from remediator.detection.hangs.verdict_text import list_verdict_reasons
from remediator.detection.hangs.wait_graph import find_final_cycles, find_sinks

ALONE = 3  # how many times as many ranks must be absent as present


class BlamedRanks(NamedTuple):
    """The culprits before the text. `root`: the call that shows the cause best."""

    kind: str
    culprits: set[int]
    root: StuckCall | None


def judge_hang(snapshot: Snapshot) -> HangVerdict:
    """Return the culprit that blocks the job, or none."""
    found = [*stuck_collectives(snapshot), *find_stuck_transfers(snapshot)]
    stuck = sorted(_drop_queued_calls(snapshot, found), key=lambda each: (each.group, each.number, each.name))
    silent = tuple(rank for rank in snapshot.everybody if rank not in snapshot.recorded)
    if not stuck:
        return HangVerdict(kind="none", silent=silent, reasons=list_verdict_reasons(snapshot, (), (), None, silent))
    blame = _blame_ranks(snapshot, stuck)
    held_up = {rank for each in stuck for rank in (*each.waiting, *each.absent) if rank in snapshot.recorded}
    culprits = tuple(sorted(blame.culprits))
    return HangVerdict(
        kind=blame.kind,
        culprits=culprits,
        victims=tuple(sorted(held_up - blame.culprits)) if blame.kind != "none" else (),
        root=blame.root,
        stuck=tuple(stuck),
        silent=silent,
        reasons=list_verdict_reasons(snapshot, stuck, culprits, blame.root, silent),
    )


def _drop_queued_calls(snapshot: Snapshot, stuck: Sequence[StuckCall]) -> list[StuckCall]:
    """Keep the first open call of ranks whose record does not show what their GPU has begun.

    Treat later ones as queued.
    """
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


def _blame_ranks(snapshot: Snapshot, stuck: Sequence[StuckCall]) -> BlamedRanks:
    unlike = [each for each in stuck if each.odd]
    if unlike:
        root = min(unlike, key=_earliest_order)
        return BlamedRanks("mismatched_collectives", {rank for each in unlike for rank in each.odd}, root)
    if snapshot.moving:
        return BlamedRanks("none", set(), None)
    if any(each.unfinished for each in stuck):
        return BlamedRanks("unfinished_call", *find_unfinished_ranks(stuck))
    inside = _fully_joined_calls(stuck)
    graph = _build_wait_graph(snapshot, stuck)
    ends = find_sinks(graph, graph.keys() | {rank for each in inside for rank in each.waiting})
    recorded = ends & snapshot.recorded
    blamed = {rank for rank in recorded if any(rank in each.absent for each in stuck)} or recorded or ends
    dead = not blamed & snapshot.recorded
    if dead and inside:
        blamed = set()  # a stuck call with all ranks inside explains the rest: those records are lost
    if blamed:
        blamed = find_necessary_dead_ranks(snapshot, stuck, graph, blamed) if dead else blamed
        shown = _clearest_stuck_call(stuck, blamed)
        alone = _lone_callers(snapshot, shown, blamed)
        if alone:
            return BlamedRanks("mismatched_collectives", alone, shown)
        return BlamedRanks("dead_rank" if dead else "stuck_compute", blamed, shown)
    crossed = find_crossed_callers(inside)
    if crossed:
        return BlamedRanks("mismatched_collectives", crossed, min(inside, key=_earliest_order))
    circles = find_final_cycles(graph)
    if circles and not inside:
        odd = find_out_of_order_ranks(snapshot, circles[0], stuck)
        return BlamedRanks("mismatched_collectives", odd, _clearest_stuck_call(stuck, odd))
    root = min(inside or stuck, key=_earliest_order)
    return BlamedRanks("undetermined" if root.group in snapshot.untimed else "network", set(), root)


def _lone_callers(snapshot: Snapshot, root: StuckCall | None, blamed: set[int]) -> set[int]:
    """Return the callers of a superfluous call: hardly any other of the group made it, and the others wait nowhere."""
    if root is None or "->" in root.name or not blamed <= set(root.absent) & snapshot.recorded:
        return set()
    inside = set(root.waiting) - set(root.idle)
    return inside if ALONE * len(inside) <= len(blamed) and set(root.absent) == blamed else set()


def _build_wait_graph(snapshot: Snapshot, stuck: Sequence[StuckCall]) -> dict[int, set[int]]:
    """Build the graph of waiting ranks. A rank without a record may be anywhere: it is waited for only where no other rank is."""
    graph: dict[int, set[int]] = {}
    for each in stuck:
        missing = each.missing
        targets = missing & snapshot.recorded or missing
        for rank in each.waiting:
            if targets and rank not in each.idle:
                graph.setdefault(rank, set()).update(targets)
    return graph


def _fully_joined_calls(stuck: Sequence[StuckCall]) -> list[StuckCall]:
    """Return calls that all ranks have entered and that do not end."""
    return [each for each in stuck if not each.missing and not each.odd]


def _clearest_stuck_call(stuck: Sequence[StuckCall], blamed: set[int]) -> StuckCall | None:
    """Return the call with most ranks waiting for the culprits, and fewest for others."""
    candidates = [each for each in stuck if blamed & each.missing]
    return min(candidates, key=lambda e: (len(e.missing - blamed), -len(e.waiting), _earliest_order(e)), default=None)


def _earliest_order(stuck: StuckCall) -> int:
    return min(stuck.orders.values(), default=0)

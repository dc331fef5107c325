"""Which of the ranks without a record is dead, and of which only the record is lost: it may wait like everybody else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from remediator.detection.hangs.call_order import group_role
from remediator.detection.hangs.call_records import Snapshot, StuckCall
from remediator.detection.hangs.wait_graph import Graph

_Like = tuple[str, int | str]  # what a call's group is for, and its number; of a message, which end waits


def find_necessary_dead_ranks(
    snapshot: Snapshot, stuck: Sequence[StuckCall], graph: Graph, blamed: AbstractSet[int]
) -> set[int]:
    """Those of the silent ranks in `blamed` without whose death the wait is not explained; all, if it is none of them.

    Ranks of one role run the same program. So a silent rank is spared if one that left a record is missing wherever that one
    alone is missed, and waits itself in a group such as that one has too, for somebody else. One that is never missed alone is spared where
    somebody else among those missed is not.
    """
    running = [each for each in stuck if set(each.waiting) - set(each.idle)]
    alone = {rank: [each for each in running if each.missing == {rank}] for rank in blamed}
    dead = {
        rank
        for rank in blamed
        if alone[rank]
        and not any(
            _chain_avoids_rank(graph, witness, rank)
            for witness in _similar_recorded_ranks(snapshot, stuck, rank, alone[rank])
        )
    }
    if not dead:
        return set(blamed)
    unexplained = [each for each in running if each.missing <= blamed and not each.missing & dead]
    return dead | {rank for rank in blamed if not alone[rank] and any(rank in each.missing for each in unexplained)}


def _similar_recorded_ranks(
    snapshot: Snapshot, stuck: Sequence[StuckCall], rank: int, alone: Sequence[StuckCall]
) -> AbstractSet[int]:
    """Ranks with a record that are missing wherever this one alone is missed, and that wait in a group like one of its."""
    own = {group_role(snapshot, key) for key, group in snapshot.groups.items() if rank in group.members}
    found = {
        other
        for each in stuck
        if group_role(snapshot, each.group) in own
        for other in each.waiting
        if other not in each.idle
    }
    for like in {_call_identity(snapshot, each) for each in alone}:
        found &= {other for each in stuck if _call_identity(snapshot, each) == like for other in each.missing}
    return found & snapshot.recorded


def _chain_avoids_rank(graph: Graph, start: int, without: int) -> bool:
    """Whether the chain of waits that begins at `start` never leads to `without`."""
    seen, todo = {start}, [start]
    while todo:
        for target in graph.get(todo.pop(), ()):
            if target == without:
                return False
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return True


def _call_identity(snapshot: Snapshot, stuck: StuckCall) -> _Like:
    role = group_role(snapshot, stuck.group)
    return (role, stuck.name.partition(" ")[0]) if "->" in stuck.name else (role, stuck.number)

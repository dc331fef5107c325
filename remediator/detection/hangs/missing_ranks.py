"""Decides which ranks without a record are dead, and which have only lost their record and may be waiting. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from remediator.detection.hangs.call_order import group_role
from remediator.detection.hangs.call_records import Snapshot, StuckCall
from remediator.detection.hangs.wait_graph import Graph

_Like = tuple[str, int | str]  # role of a call's group, and its number; for a message, the waiting end


def find_necessary_dead_ranks(
    snapshot: Snapshot, stuck: Sequence[StuckCall], graph: Graph, blamed: AbstractSet[int]
) -> set[int]:
    """Return the silent ranks in `blamed` whose death is needed to explain the wait; all, if none is.

    Ranks of one role run the same program. So a silent rank is spared if a recorded rank is missing wherever this one
    alone is missing, and waits for another rank in a group that this one has as well. A silent rank that is never
    missing alone is spared if another of the missing ranks is not.
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
    """Return recorded ranks that are missing wherever this one alone is, and that wait in a group like one of its."""
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
    """Return whether the chain of waits from `start` never reaches `without`."""
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
